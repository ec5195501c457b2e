#!/usr/bin/env bash
# Makes (once) the Python environment of the tests at the given folder and prints its interpreter.
# Exits 77, which ctest counts as skipped, when the packages cannot be installed.
set -euo pipefail
folder=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
stamp=$folder/requirements.sha256
wanted=$(sha256sum <"$here/requirements.txt")
exec 9>"$folder.lock" && flock 9  # tests that run side by side share it
if [ ! -x "$folder/bin/python" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$folder"
  if ! { python3 -m venv "$folder" &&
    "$folder/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"; } >&2; then
    echo "skipped: the packages of tests/python/requirements.txt could not be installed from PyPI" >&2
    rm -rf "$folder"
    exit 77
  fi
  echo "$wanted" >"$stamp"
fi
echo "$folder/bin/python"
