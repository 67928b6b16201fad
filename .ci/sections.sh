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

print_sections() {
  printf '\n==== sections\n'
  printf '%s\n' "${sections[@]}"
}
