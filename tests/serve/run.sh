#!/usr/bin/env bash
# run.sh TARE_BINARY VENV TEST.py: a server test with the official client library.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$("$here/../python/venv.sh" "$2")
TARE_BINARY=$1 exec "$python" "$here/$3"
