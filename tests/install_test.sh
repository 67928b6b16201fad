#!/bin/sh
# Checks that an installed prefix works without the source tree: sh install_test.sh BUILD SOURCE
# Where unprivileged namespaces are allowed, an empty folder hides the tree; else the prefix runs beside the tree.
set -eu
for needed in austen.txt gpt2; do
  [ -e "$2/data/$needed" ] || { echo "no data/$needed: scripts/prepare_data.py fetches it"; exit 77; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$1" --prefix "$folder/moved" >/dev/null
mv "$folder/moved" "$folder/prefix"
mkdir "$folder/venv"
cat >"$folder/use" <<'EOF'
set -eux
folder=$1 source=$2 hide=$3
cd "$folder"
python=python3
if [ -e "$source/.venv/bin/python" ]; then python=$source/.venv/bin/python; fi
if $hide; then
  if [ $python != python3 ]; then
    mount --bind "$source/.venv" venv
    python=$folder/venv/bin/python
  fi
  mount -t tmpfs none "$source"
fi
export STEPLADDER_PYTHON="${STEPLADDER_PYTHON:-$python}"
stepladder=prefix/bin/stepladder
# says PATTERN ARGUMENT...: runs stepladder; expects success (a pipe would hide a failure) and output that matches PATTERN.
says() {
  pattern=$1
  shift
  $stepladder "$@" >said
  grep "$pattern" said
}
says 13_cuda_graphs list
says 13_cuda_graphs run --backend cpu --preset cpu-quick --rungs 00,13 --steps 3 --warmup 1 --rounds 1 --out r.json
$stepladder report r.json --out page
if [ -d prefix/libexec/stepladder/ablations ]; then
  says only/02_tf32 ablate --backend cpu --preset cpu-quick --rungs 02 --kinds only --steps 2 --warmup 1 --rounds 1 --out a.json
fi
test -s page/summary.md
if "$STEPLADDER_PYTHON" -c 'import jinja2, jsonschema, matplotlib'; then test -s page/index.html; fi
says ops.record diff 12 13
$stepladder train 02_tf32 --backend cpu --model gpt2-tiny --layers 1 --heads 1 --channels 16 --seq 32 --steps 1 --checkpoint run.ckpt
$stepladder sample 02_tf32 --backend cpu --resume run.ckpt --prompt "It is" --sample-tokens 8 >text
test "$(wc -c <text)" -gt 14 # words of the vocabulary that was shipped, not bytes
bash -c '. prefix/share/bash-completion/completions/stepladder && complete -p stepladder'
test -e prefix/share/stepladder/examples/cpp/../../bench/run/stepladder.h
says 00_adamw run --ladder learning --backend cpu --preset cpu-quick --steps 3 --warmup 1 --rounds 1 --out l.json
says 00_eager list --ladder prefix/share/stepladder/examples/nanogpt/ladder.json
EOF
if unshare -Urm true 2>/dev/null; then
  unshare -Urm sh "$folder/use" "$folder" "$2" true
else
  sh "$folder/use" "$folder" "$2" false
fi
