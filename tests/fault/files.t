#!/bin/sh
# Tools that write one file, killed at every call by which they change something: the file is what it was, or what it is to be, and what is
# left of the attempt is taken by no reader. The next start removes
# it, with a line. Where the call fails instead, that is said in a line, and nothing is left.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
. "$SRC/tests/fault/lib.sh"
ok "a step of a run" fp8-step ../m.h5 --data ../d.h5 --seq-length 16 --batch-size 2 --steps 1 --out ../run -q
ok "quantized weights" fp8-quantize ../m.h5 -o ../q.h5 --scaling row

# The file after a kill: `old`, or nothing where that is empty, unless it is `new`.
check() { # NUMBER OF THE CALL
  if cmp -s out.h5 ../new; then
    :
  elif [ "$1" -gt "$committed" ]; then
    complain "what was committed is lost"
  elif [ -n "$old" ]; then
    cmp -s out.h5 "$old" || complain "the old file is lost"
  else
    [ ! -e out.h5 ] || complain "half a file has the name"
  fi
  for left in .out.h5.*; do
    [ ! -e "$left" ] || ! fp8-info "$left" >../out 2>../err || grep -q 'a token file' ../out || complain "$left was read"
  done
}
campaign() { # COMMAND...: writes out.h5
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
  kill_at kill $((committed - 2)) "$@" # all is written, and has the other name
  "$@" >../out 2>../err || complain "the same command again fails"
  for left in .out.h5.*; do [ ! -e "$left" ] || complain "$left stays"; done
  [ "$(wc -l <../err) $(grep -c "^$1: .*/\.out\.h5\..*\.tmp: left over from an interrupted save, removed$" ../err)" = "1 1" ] || complain "left-overs are not told of"
  cmp -s out.h5 ../new || complain "the same command again writes something else"
  nothing_lost "$1: $failed calls that fail" $failed
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
