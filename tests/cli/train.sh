# shellcheck shell=sh disable=SC2016,SC2086 # each rank's shell expands the variables; a moment is a list of words
# Functions for tests of training. Source this file after lib.sh: it makes m.h5, a tiny model, and d.h5, 20000 tokens, or as many as
# text_size says.
#   losses FILE                prints a line per step record: step, loss, gradient norm
#   story FILE                 prints the type of each record, followed by its step
#   field NAME FILE            prints the values of a field, one line per record that has the field
#   near NAME FILE FILE TOL    passes if the losses of two logs have a relative difference of at most TOL
#   same_bits NAME FILE FILE   passes if losses and gradient norms of two logs are equal to the last digit
#   refused NAME REGEX WORDS   passes if `fp8-step WORDS` gives status 2, prints one line that matches, and creates no folder x
#   same_step NAME A B         passes if two checkpoints have equal weights and moments
#   norm FILE                  prints the gradient norm of the first step record
#   evaluations FILE           prints the loss of each evaluation record
#   evaluate RANKS MODEL LOG FLAGS
#                              writes the records of fp8-eval, which ends also where a rank waits for one that has ended
#   near_values NAME A B       passes if two lists of numbers have relative differences of at most 1e-6
#   mixture                    makes x.h5, a mixture of seven experts, which no number of ranks divides,
#   and few.h5, data of which the first 24 samples have
#                              targets and the others have none: in this order, steps of 24 sequences after the first update nothing
#   soon COMMAND...            repeats the command until it succeeds, at most a minute
#   kill_rank NAME RANKS RANK MOMENT MODEL FLAGS
#                              starts or resumes the run killed, which saves at every step,
#                              waits for a checkpoint of this start and then for the command
#                              MOMENT, and sends SIGKILL to one rank;
#                              passes if the run has saved more than after the kill before it, the checkpoints in its
#                              log exist and all checkpoints verify; sets there to the newest one, and counts the passes in kept
#   unfinished                 succeeds if a save of the run killed has started and not ended
#   sleeping FILE              writes a C source for a library to preload to FILE and appends the input: with it, ranks that wait sleep
fp8-init tiny -o m.h5 >out 2>err && head -c "${text_size:-20000}" "$FP8_SHARE/text/tinyshakespeare.txt" >text.txt &&
  fp8-tokenize text.txt -o d.h5 >>out 2>>err
result $? "a model and data are made"

losses() { sed -n 's/.*"type":"step","step":\([0-9]*\),.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2 \3/p' "$1"; }
story() { sed -n 's/^{"type":"\([a-z]*\)"\(,"step":\([0-9]*\)\)\{0,1\}.*/\1\3/p' "$1" | tr '\n' ' '; }
field() { grep -o "\"$1\":[^,}]*" "$2" | cut -d: -f2-; }
near() {
  losses "$2" >near.a && losses "$3" >near.b && [ -s near.a ] && paste -d' ' near.a near.b |
    awk -v tol="$4" 'NF != 6 || $1 != $4 { bad = 1 } { d = ($2 - $5) / $5; if (d < 0) d = -d; if (!(d <= tol)) bad = 1 } END { exit bad }'
  near=$?
  [ $near = 0 ] || paste -d' ' near.a near.b | sed 's/^/# /' >&2
  result $near "$1"
}
same_bits() {
  is "$1" "$(losses "$2")" "$(losses "$3")"
  [ -n "$(losses "$2")" ] || result 1 "$1: the log has losses"
}
refused() {
  name=$1 pattern=$2
  shift 2
  fp8-step "$@" >out 2>err </dev/null
  got=$?
  [ $got = 2 ] && [ "$(wc -l <err)" = 1 ] && grep -Eq -e "^fp8-step: $pattern" err && [ ! -s out ] && [ ! -e x ]
  got=$?
  result $got "$name"
  rm -rf x
}
same_step() {
  fp8-info "$2" --diff "$3" >out 2>err
  result $? "$1"
}
norm() { losses "$1" | awk 'NR == 1 { print $3 }'; }
evaluations() { grep '"type":"eval"' "$1" | sed 's/.*"loss":\([^,]*\),.*/\1/'; }
evaluate() {
  n=$1 m=$2 log=$3
  shift 3
  mpirun -n "$n" fp8-eval "$m" --timeout 60 -q "$@" >"$log" 2>err </dev/null
}
near_values() {
  [ -n "$2" ] && printf '%s\n' "$2" >near.a && printf '%s\n' "$3" | paste -d' ' near.a - |
    awk '{ d = $1 / $2 - 1; if (NF != 2 || !(d <= 1e-6 && d >= -1e-6)) bad = 1 } END { exit bad }'
  result $? "$1"
}
mixture() {
  fp8-init qwen3-moe-tiny --set num_experts=7 --set num_hidden_layers=2 -o x.h5 -q >out 2>err &&
    { head -n 24 text.txt | sed 's/["\\]//g; s/^\(.\{0,8\}\).*/{"text":"any \1"}/' && yes '{"text":"a"}' | head -n 200; } >few.jsonl &&
    fp8-tokenize few.jsonl -o few.h5 -q >out 2>err
  result $? "a mixture of experts and data without targets are made"
}
soon() {
  tries=0
  until "$@" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 1200 ] || return 1
    sleep 0.05
  done
}
newest=0 kept=0
vanished() { ! kill -0 "$1" 2>/dev/null; }
unfinished() { [ -n "$(find killed -name 'step-*.tmp')" ]; }
verified() { for step in killed/step-????????; do fp8-info --verify "$step" >out 2>err </dev/null || return 1; done; }
kill_rank() {
  name=$1 ranks=$2 rank=$3 moment=$4
  shift 4
  rm -f pid? log
  mpirun -n "$ranks" sh -c 'echo $$ >pid$OMPI_COMM_WORLD_RANK; exec fp8-step "$@"' fp8-step "$@" --data d.h5 --seq-length 32 --steps 100000 \
    --lr 1e-3 --precision fp8 --recipe delayed --amax-history 3 --save-every 1 --keep 2 --out killed -q >log 2>notes </dev/null &
  job=$!
  soon grep -q '"type":"checkpoint"' log && soon $moment
  reached=$?
  kill -9 "$(cat "pid$rank")"
  wait $job
  for one in pid?; do soon vanished "$(cat "$one")"; done # mpirun(1) may end before its ranks, which hold the folder
  told=$(grep '"type":"checkpoint"' killed/log.jsonl | field step - | tail -n 1)
  there=$(find killed -name 'step-????????' | sort | tail -n 1)
  [ $reached = 0 ] && [ "$there" ] && [ "1${there##*-}" -ge "1$(printf '%08d' "$told")" ] && [ "$told" -gt $newest ]
  exist=$?
  result $exist "$name: the checkpoints in the log exist"
  verified
  verify=$?
  result $verify "$name: all checkpoints verify"
  [ $exist$verify != 00 ] || kept=$((kept + 1))
  newest=$told
}
# Open MPI calls sched_yield between two looks at its queues: ranks that wait for a lost one would use a core each.
sleeping() {
  printf '%s\n' '#define _GNU_SOURCE' '#include <time.h>' \
    'int sched_yield(void) { const struct timespec moment = {0, 1000000}; return nanosleep(&moment, NULL); }' >"$1"
  cat >>"$1"
}
