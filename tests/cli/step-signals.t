#!/bin/sh
# fp8-step on one rank: requests to stop before the first step, while it trains and while it saves.
# shellcheck disable=SC2016,SC2086 # another shell expands the variables; lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
flags="m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 1000000"
usual="env --default-signal=INT,HUP" # a shell's & leaves INT ignored
until_does() { # COMMAND...: repeats the command until it succeeds, at most a minute
  tries=0
  until "$@" >/dev/null 2>&1 || [ $((tries += 1)) = 600 ]; do sleep 0.1; done
}
trains() { grep -q '"type":"step"' records; }
catches() { grep -Eq '^SigBlk:.*[4-7c-f][2367abef]..$' "/proc/$pid/status"; } # the signals are blocked
ended() { # waits for $pid and kills it after 10 s
  (sleep 10 && kill -KILL $pid) >/dev/null 2>&1 & # prove reads standard output until no process has it
  guard=$!
  wait $pid
  got=$?
  kill $guard 2>/dev/null
}

# --- before the first step: fp8-step ends at once and writes nothing
mkfifo fifo idle
for signal in USR1 TERM INT HUP; do
  $usual fp8-step $flags --out early --config fifo >out 2>err </dev/null &
  pid=$!
  until_does catches
  sleep 0.3
  kill -$signal $pid
  ended
  is "$signal: fp8-step waiting for a configuration ends with status 75" "$got $(cat err) $(ls early 2>/dev/null)" \
    "75 fp8-step: $signal: ended before the first step "
  exec 3<>idle
  $usual fp8-step - --data d.h5 --steps 9 --out early >out 2>err <&3 &
  pid=$!
  exec 3<&-
  until_does catches
  sleep 0.3
  kill -$signal $pid
  ended
  is "$signal: fp8-step waiting for standard input ends with status 75" "$got $(cat err) $(ls early 2>/dev/null)" \
    "75 fp8-step: $signal: ended before the first step "
done

# --- during training: fp8-step saves a checkpoint and names it
for signal in USR1 TERM INT HUP; do
  rm -f records
  $usual fp8-step $flags --out run >records 2>err </dev/null &
  pid=$!
  until_does trains
  kill -$signal $pid
  ended
  newest=$(fp8-resume run --print)
  is "$signal: status 75 and a message that names the checkpoint" \
    "$got $(grep -c "^fp8-step: stopped on request: $newest is saved, and the same command goes on from it\$" err)" "75 1"
  is "$signal: the checkpoint is that of the last step" "$newest" "run/$(printf 'step-%08d' "$(field step records | tail -1)")"
done

# --- ignored signals stay ignored
rm -f records
(trap '' INT HUP && exec fp8-step $flags --out run >records 2>err </dev/null) &
pid=$!
until_does trains
kill -INT $pid
kill -HUP $pid
kill -INT $pid
at=$(field step records | tail -1)
until_does grep -q "\"step\":$((at + 20))," records
ok "nohup: INT and HUP are ignored" kill -0 $pid
kill -TERM $pid
ended
is "nohup: TERM gives status 75" $got 75

# --- further signals during a save: USR1, TERM and HUP change nothing, a second INT ends the run
mkdir slow && cat >slow.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int fd) {
  static int (*next)(int);
  if (next == 0) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  if (access("slow/on", F_OK) == 0) usleep(500000);
  return next(fd);
}
END
cc -shared -fPIC -o slow.so slow.c -ldl || result 1 "slow.so"
saves() { ls -d run/step-*.tmp; }
begin() {
  rm -f records slow/on
  $usual env LD_PRELOAD="$PWD/slow.so" fp8-step $flags --out run >records 2>notes </dev/null &
  pid=$!
  until_does trains
  touch slow/on
}
begin
before=$(fp8-resume run --print)
kill -TERM $pid
until_does saves
for signal in TERM USR1 HUP TERM INT; do kill -$signal $pid; done
ended
[ "$(fp8-resume run --print)" != "$before" ]
result $? "TERM, USR1, HUP and one INT do not interrupt a save"
is "TERM, USR1, HUP and one INT during a save give status 75" $got 75
begin
before=$(fp8-resume run --print)
kill -INT $pid
until_does saves
until_does grep -q INT notes
ok "INT prints a message about the save" grep -q '^fp8-step: INT: saving after this step; once more ends the run without saving$' notes
kill -INT $pid
ended
is "a second INT gives status 130" "$got $(grep -c '^fp8-step: INT again: ended without saving' notes)" "130 1"
is "the last committed checkpoint is unchanged" "$(fp8-resume run --print)" "$before"
ok "all checkpoints verify" sh -c 'for s in run/step-????????; do fp8-info --verify $s || exit 1; done'
rm -f slow/on
ok "the run resumes" fp8-step $flags --out run --until-step $(($(echo "$before" | sed 's/.*step-0*//') + 1))
done_testing
