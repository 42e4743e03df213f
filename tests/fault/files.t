#!/bin/sh
# Tools that write one file. A kill at any counted call leaves the old file or the complete new file, and a temporary file that no tool reads;
# the next run removes the temporary file with one line. A call that fails gives one line and leaves no temporary file.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
ok "a run of one step" fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size 2 --steps 1 --out ../run -q
ok "a quantized checkpoint" fp8-quantize ../m.h5 -o ../q.h5 --scaling row

# check CALL: complains unless out.h5 is the new file, or, before the commit, the file $old (no file if $old is empty).
check() {
  if cmp -s out.h5 ../new; then
    :
  elif [ "$1" -gt "$committed" ]; then
    complain "the committed file is lost"
  elif [ -n "$old" ]; then
    cmp -s out.h5 "$old" || complain "the old file is lost"
  else
    [ ! -e out.h5 ] || complain "an incomplete file has the final name"
  fi
  for left in .out.h5.*; do
    [ ! -e "$left" ] || ! fp8-info "$left" >../out 2>../err || grep -q 'a token file' ../out || complain "$left was read"
  done
}
campaign() { # COMMAND...: tests a command that writes out.h5
  rm -rf .out* out.h5
  calls "$@" >/dev/null
  mv out.h5 ../new
  failed=0
  committed=$(awk '$1 == "rename" { moved = 1 } moved && $1 == "fsync" { print NR; exit }' ../calls)
  for way in kill torn power bytes; do
    words=
    [ "$way" != torn ] || words="write"
    for at in $(some "$words"); do
      for old in "" "$work/old.h5"; do
        rm -rf .out* out.h5
        [ -z "$old" ] || cp "$old" out.h5
        kill_at $way $at "$@"
        check $at
      done
    done
  done
  tally "$1"
  for way in eio enospc; do
    for at in $(some); do
      rm -rf .out*
      cp "$old" out.h5
      faulty $way $at "$@"
      got=$?
      [ "$got $(wc -l <../err) $(grep -c "^$1: .*out.h5\|^$1: \.: cannot sync" ../err)" = "2 1 1" ] || complain "$way at call $at: status $got"
      check $at
      failed=$((failed + 1))
      for left in .out.h5.*; do
        [ ! -e "$left" ] || [ "$(sed -n "${at}s/ .*//p" ../calls)" = unlink ] || complain "$way at call $at: $left is left"
      done
    done
  done
  rm -rf .out*
  kill_at kill $((committed - 2)) "$@" # the temporary file is complete
  "$@" >../out 2>../err || complain "the same command again fails"
  sed -i '/: has no tokenizer.json, /d' ../err # a note about the model of these tests
  for left in .out.h5.*; do [ ! -e "$left" ] || complain "$left stays"; done
  [ "$(wc -l <../err) $(grep -c "^$1: .*/\.out\.h5\..*\.tmp: left over from an interrupted save, removed$" ../err)" = "1 1" ] ||
    complain "no message about the temporary file"
  cmp -s out.h5 ../new || complain "the same command again writes something else"
  nothing_lost "$1: $failed failing calls give one line and keep the old file" $failed
}
cp ../m.h5 ../old.h5
campaign fp8-init tiny --seed 3 -f -o out.h5
campaign fp8-convert "$SRC/tests/golden/models/llama3/hf" -f -o out.h5
campaign fp8-convert ../run/step-00000001 --merge -f -o out.h5
campaign fp8-quantize ../m.h5 --scaling tensor -f -o out.h5
campaign fp8-quantize ../q.h5 --dequantize -f -o out.h5
cp ../d.h5 ../old.h5
campaign fp8-tokenize "$SRC/LICENSE" --from text -f -o out.h5
finish
