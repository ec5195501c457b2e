#!/usr/bin/env bash
# run.sh TARE_BINARY VENV: the server tests with the official client library, on the real model.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$("$here/../python/venv.sh" "$2")
TARE_BINARY=$1 exec "$python" "$here/openai_client_test.py"
