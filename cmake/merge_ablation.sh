#!/usr/bin/env bash
# Merges what changes from a rung's file FROM to another's, TO, into the file INTO, from the root of the sources, for ablation NAME
# ("without/03_fused_adamw"). A conflict is an error unless variants/NAME.cpp is there; if it is, no conflict is an error.
# Usage: merge_ablation.sh GIT NAME INTO FROM TO OUT
set -euo pipefail
git=$1 name=$2 into=$3 from=$4 to=$5 out=$6
rung=${name#*/} written=variants/$name.cpp

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

mkdir -p "$(dirname "$out")"
conflicts=0
"$git" merge-file -p -q "$into" "$from" "$to" >"$out.new" || conflicts=$?
((conflicts < 128)) || die "$name: git merge-file failed with status $conflicts"
if ((conflicts > 0)); then
  [[ -f $written ]] ||
    die "$name: the lines that $rung changes are not the same in $into: name the rung that changed them as its \"needs\", or write $written"
elif [[ -f $written ]]; then
  die "$written is not needed: $rung and $into merge without conflict; remove it"
fi
mv "$out.new" "$out"
