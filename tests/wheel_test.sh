#!/bin/sh
# sh wheel_test.sh WHEEL SOURCE [RUNGS] checks that a wheel works in a fresh environment of a user without compiler, toolkit
# and network.
# Page and charts take their packages from SOURCE/.venv, the default text and vocabulary come from SOURCE/data. RUNGS: the
# rungs to climb, all by default. The network is cut off where unprivileged namespaces are allowed.
set -eu
wheel=$1 source=$2 rungs=${3:-all}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=python3
if [ -x "$source/.venv/bin/python" ]; then python=$source/.venv/bin/python; fi
"$python" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
site=$("$folder/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/page.pth"
mkdir -p "$folder/cache/stepladder" "$folder/bin" "$folder/work" "$folder/copied"
cp -r "$source/data" "$folder/cache/stepladder/data"
for tool in sh cat diff grep sed; do ln -s "$(command -v "$tool")" "$folder/bin"; done
cat >"$folder/work/train.py" <<'PYTHON'
import sys
import stepladder
folder = stepladder.__file__.rpartition("/")[0]
assert folder in sys.path and folder.endswith("share/stepladder/python/trainer"), stepladder.__file__
run = stepladder.start(batch=4, seq=64)
while True:
    with run.step() as step:
        step.loss = 9.0 - run.done
PYTHON
cp "$folder/work/train.py" "$folder/copied"
cp "$source/python/trainer/stepladder.py" "$folder/copied"
sed -i '/assert/d' "$folder/copied/train.py"
cat >"$folder/work/ladder.json" <<'JSON'
{"name": "mine", "workload": {"batch": [4], "seq": 64, "steps": 5, "warmup": 2},
 "rungs": [{"name": "00_mine", "changes": "a loop", "tolerance": 0.0, "command": ["{python}", "train.py"]}]}
JSON
cp -r "$folder/work" "$folder/base"
cat >"$folder/use" <<'EOF_USE'
set -eu
rungs=$1 ablations=$2
step() { printf '%s\n' "$*" >&2; }
# fails STATUS WORD ARGUMENT...: expects this exit status and one line with the word.
fails() {
  status=$1 word=$2 code=0
  shift 2
  stepladder "$@" >said 2>&1 || code=$?
  [ "$code" = "$status" ] && grep -q -- "$word" said && [ "$(grep -c . said)" = 1 ] || { echo "$*: $code"; cat said; exit 1; } >&2
}
says() {
  word=$1
  shift
  stepladder "$@" >said 2>&1 || { cat said >&2; exit 1; }
  grep -q -- "$word" said || { echo "$*: no $word"; cat said; exit 1; } >&2
}
step 'an exception of one library is caught in another, and said in a line'
fails 2 layers train 00 --backend cpu --layers 0
fails 2 nowhere report nowhere.jsonl
fails 5 memory train 00 --backend cpu --model gpt2-xl --batch 4096 --steps 1
step 'doctor, climb, page'
stepladder doctor >/dev/null
tiny='--backend cpu --preset cpu-quick --steps 3 --warmup 1 --rounds 1'
stepladder run $tiny --rungs "$rungs" --out r.jsonl >/dev/null
stepladder report r.jsonl --out page >/dev/null
[ -s page/index.html ]
step 'ablation, sample'
if [ -e "$ablations" ]; then says only/02_tf32 ablate $tiny --rungs 02 --kinds only --out a.jsonl; fi
stepladder train 02_tf32 --backend cpu --model gpt2-tiny --layers 1 --heads 1 --channels 16 --seq 32 --steps 1 --checkpoint c >/dev/null
stepladder sample 02_tf32 --backend cpu --resume c --prompt 'It is' --sample-tokens 8 >said
[ -s said ]
step 'trials that come with the ladder of learning'
stepladder run --ladder learning --rungs 03 --backend cpu --model gpt2 --seq 1024 --batch 16 --until-loss 3 \
  --tuned variants/learning/trials.jsonl.gz --check-only
step 'a trainer of your own'
python -c 'import stepladder; assert not stepladder.start(batch=1, seq=1)'
says ok check-trainer python train.py
says ../copied/stepladder.py check-trainer python ../copied/train.py
stepladder run --ladder ladder.json --backend cpu --rounds 1 --out mine.jsonl >/dev/null
code=0
stepladder gate ../base . --ladder ladder.json --backend cpu --pairs 3 --max-pairs 3 --repeat 1 >said 2>&1 || code=$?
case $code in 0 | 1 | 3) ;; *) cat said >&2 && exit 1 ;; esac # steps this short vary, so any verdict may come
step 'a cache folder that is read-only'
XDG_CACHE_HOME=/proc fails 2 XDG_CACHE_HOME run $tiny --rungs 00
EOF_USE
cd "$folder/work"
set -- "$folder/bin/sh" "$folder/use" "$rungs" "$site/stepladder/libexec/stepladder/ablations"
if unshare -rn true 2>/dev/null; then set -- "$(command -v unshare)" -rn "$@"; fi
env -i PATH="$folder/env/bin:$folder/bin" HOME="$folder" XDG_CACHE_HOME="$folder/cache" LANG=C.UTF-8 \
  STEPLADDER_BUSY_SAMPLE_MS=0 "$@"
