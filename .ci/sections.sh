# shellcheck shell=bash disable=SC2034
# Timed sections of a check; sourced by .ci/run and .ci/full.
sections=()
failed=0

# section NAME COMMAND...
section() {
  local name=$1 start=$SECONDS verdict=ok
  shift
  printf '\n==== %s: %s\n' "$name" "$*"
  "$@" || { verdict=FAILED && failed=1; }
  sections+=("$(printf '%-12s %-6s %4d s' "$name" "$verdict" $((SECONDS - start)))")
}

# beside NAME COMMAND...: a section that runs while others do, in the cores' idle moments. joined NAME: waits for it, prints what it
# printed.
beside() {
  rm -f "build/$1.section"
  (
    section "$1" nice -n 19 "${@:2}"
    printf '%s\n' "${sections[-1]}" >"build/$1.section"
    exit "$failed"
  ) >"build/$1.log" 2>&1 &
  beside=$!
}
joined() {
  wait "$beside" || failed=1
  cat "build/$1.log"
  sections+=("$(<"build/$1.section")")
}

print_sections() {
  printf '\n==== sections\n'
  printf '%s\n' "${sections[@]}"
}
