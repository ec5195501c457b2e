#!/usr/bin/env bash
# Runs every libFuzzer program of a build for some seconds each: fuzz.sh DIRECTORY SECONDS.
# Found inputs stay in fuzz/corpus-<name>; a crash stops the run and names the input.
set -euo pipefail
dir=$1 seconds=$2
found=0
for program in "$dir"/*_fuzz; do
  [ -x "$program" ] || continue
  found=1
  name=$(basename "$program")
  corpus=build-fuzz/corpus-$name
  mkdir -p "$corpus"
  seeds=()
  [ -d "fuzz/seeds/$name" ] && seeds=("fuzz/seeds/$name")
  echo "fuzzing $name for $seconds s"
  "$program" "$corpus" "${seeds[@]}" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=10 \
    -print_final_stats=0 -verbosity=0 -artifact_prefix="build-fuzz/$name-"
done
[ "$found" = 1 ] || { echo "no fuzzers in $dir" >&2; exit 1; }
echo "all fuzzers ran clean"
