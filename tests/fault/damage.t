#!/bin/sh
# Damaged checkpoints on the command line: no tool accepts one, a run resumes from the newest valid checkpoint, and fp8-resume does not loop.
# fault_test tests thousands of damaged copies.
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
step="fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --out run -q"
damage() { printf '\001' | dd of="$1" bs=1 seek=$(($(wc -c <"$1") / 2)) conv=notrunc 2>/dev/null; }

# shellcheck disable=SC2086
ok "a run of five steps" $step --steps 5 --save-every 1
fp8-quantize m.h5 -o q.h5 --scaling row >out 2>err
cp -r run/step-00000005 d5 && damage d5/rank-00000-of-00001.h5
cp m.h5 dm.h5 && damage dm.h5
cp q.h5 dq.h5 && damage dq.h5
named() { # SOURCE COMMAND...
  source=$1
  shift
  "$@" >out 2>err </dev/null
  got=$?
  is "$1 of a damaged ${source%/*} gives status 2 and one line, and writes nothing" \
    "$got $(grep -c "^$1: $source.*: damaged" err) $(wc -l <err) $(ls x 2>&1)" "2 1 1 ls: cannot access 'x': No such file or directory"
}
for source in dm.h5 d5/rank-00000-of-00001.h5; do
  from=${source%/*}
  named "$source" fp8-info "$from" --verify
  named "$source" fp8-convert "$from" -o x
  named "$source" fp8-convert "$from" --merge --dtype bf16 -o x
  named "$source" fp8-quantize "$from" --scaling tensor -o x
  named "$source" fp8-eval "$from" --data d.h5
  named "$source" fp8-step "$from" --data d.h5 --seq-length 16 --batch-size 2 --steps 1 --out x -q
done
named dq.h5 fp8-quantize dq.h5 --dequantize -o x

# The newest three checkpoints are damaged: a changed byte, a file of another step, no manifest.
damage run/step-00000005/rank-00000-of-00001.h5
cp run/step-00000002/rank-00000-of-00001.h5 run/step-00000004
rm run/step-00000003/manifest.json
is "fp8-resume --print finds the newest valid checkpoint" "$(fp8-resume run --print 2>err)" run/step-00000002
is "messages name each damaged checkpoint, newest first" \
  "$(sed -n 's/^fp8-resume: run.step-0*\([0-9]*\): damaged, trying an older one: .*/\1/p' err | tr '\n' ' ')" "5 4 3 "
# shellcheck disable=SC2086
fp8-resume run -- $step --steps 6 >out 2>err
is "the run resumes from the newest valid checkpoint" "$? $(losses out | cut -d' ' -f1 | tr '\n' ' ')" "0 3 4 5 6 "
is "the resumed run ends with a valid checkpoint" "$(fp8-info --verify run/step-00000006 >out 2>err && fp8-resume run --print)" run/step-00000006

# A command that damages its own checkpoints makes no progress.
rm -rf run
cat >spoil <<END
$step --steps 2 >/dev/null && printf x >>run/step-00000002/rank-00000-of-00001.h5
exit 75
END
fp8-resume run --attempts 3 -- sh spoil >out 2>err
is "fp8-resume stops after a command that makes no valid checkpoint" "$? $(grep -c '"action":"launch"' out)" "2 1"
tail -1 err >said
says "the last line has the reason" 'every checkpoint in it is damaged' cat said
done_testing
