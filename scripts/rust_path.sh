# Sourced: puts a Rust toolchain of at least 1.85 first on PATH when there is one.
# Debian's rustc-web/cargo-web install /usr/bin/{rustc,cargo}; rustup's live in ~/.cargo/bin.

rust_recent() {  # is this cargo 1.85 or newer?
  local version
  version=$("$1" --version 2>/dev/null | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')
  [ -n "$version" ] && [ "$(printf '%s\n1.85\n' "$version" | sort -V | head -n1)" = 1.85 ]
}

have_rust() {
  local candidate
  for candidate in "$(command -v cargo || true)" "$HOME/.cargo/bin/cargo" /usr/bin/cargo; do
    if [ -n "$candidate" ] && [ -x "$candidate" ] && rust_recent "$candidate"; then
      PATH=$(dirname "$candidate"):$PATH
      export PATH
      return 0
    fi
  done
  return 1
}

have_rust || true
