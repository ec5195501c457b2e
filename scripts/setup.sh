#!/usr/bin/env bash
# Installs what building and testing Tare needs and is missing: Debian packages (packages.txt, with
# --dev also packages-dev.txt) and a Rust toolchain. Silent and under 2 s when nothing is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

lists=("$here/packages.txt")
[ "${1:-}" = "--dev" ] && lists+=("$here/packages-dev.txt")

wanted=$(cat "${lists[@]}" | grep -v '^#' | grep .)

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  if [ "${TARE_SKIP_SETUP:-}" = 1 ]; then exit 0; fi
  echo "setup: this machine has no apt-get. Install the equivalents of these Debian 12 packages," >&2
  echo "setup: and Rust 1.85 or newer, then run again with TARE_SKIP_SETUP=1:" >&2
  echo "$wanted" | tr '\n' ' ' >&2
  echo >&2
  exit 3
fi

# All at once: one dpkg-query instead of one a package.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p')
missing=$(comm -23 <(echo "$wanted" | sort -u) <(echo "$installed" | sort -u))

# shellcheck source=rust_path.sh
source "$here/rust_path.sh"
if ! have_rust; then
  missing=$(printf '%s\nrustc-web\ncargo-web\n' "$missing" | grep .)
fi
[ -z "$missing" ] && exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: these packages are missing and need root to install (no sudo here):" >&2
    echo "setup:   apt-get install $(echo $missing)" >&2
    exit 3
  fi
  sudo=(sudo)
fi

echo "setup: installing with apt-get:" $missing
export DEBIAN_FRONTEND=noninteractive
install() { "${sudo[@]}" apt-get install -y --no-install-recommends -qq $missing >"$1" 2>&1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install "$log"; then
  # A bare image has no package lists, an old one has stale ones.
  echo "setup: refreshing the package lists"
  if ! "${sudo[@]}" apt-get update -qq >"$log" 2>&1 || ! install "$log"; then
    tail -n 15 "$log" >&2
    echo "setup: apt-get could not install what is missing (see above)." >&2
    echo "setup: with no network, install the packages by hand and run again." >&2
    exit 3
  fi
fi
hash -r
if ! have_rust; then
  echo "setup: no Rust 1.85 or newer after installing cargo-web; found: $(cargo --version 2>&1 || true)" >&2
  exit 3
fi
