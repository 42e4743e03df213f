# shellcheck shell=sh disable=SC2154 # work is of tests/cli/lib.sh
# What tests of faults share. Source it after tests/cli/lib.sh and tests/cli/train.sh. It begins $work/place, the folder in which calls count,
# and enters it.
#   faulty DO N COMMAND...   the command, with the fault DO at its Nth call that changes something under $place; see preload.cc
#   calls COMMAND...         how many such calls it makes; ../calls has a line for each
#   some [WORDS]             the numbers of those calls that a test is to be made at: under FAULTS=all each, else those that sync, rename,
#                            make or remove, a few that write, and the last; of these words alone where there are any
#   committed STEP           the number of the call with which the step is committed
#   kill_at DO N COMMAND...  faulty, and it must be killed
#   whole RUN STEP...        nothing that was committed is lost
#   same FOLDER FOLDER       two checkpoints are equal
#   complain TEXT            something was lost
#   nothing_lost NAME N      passes when there were no complaints since the last time, and N tries
#   tally NAME               the same for kills
#   finish                   in the place of done_testing
O=${O:-$SRC/build} faults=${FAULTS:-sample}
place=$(pwd -P)/place
mkdir place && cd place || exit 2
kills=0 all_kills=0 lost=0
faulty() {
  do=$1 at=$2
  shift 2
  { env FAULT_UNDER="$place" FAULT_DO="$do" FAULT_AT="$at" LD_PRELOAD="$O/test/fault.so" "$@" </dev/null >../out; } 2>../err
}
calls() {
  rm -f ../calls
  FAULT_LOG=$work/calls faulty count 0 "$@" || echo "# failed: $*" >&2
  wc -l <../calls
}
some() {
  [ "$faults" = all ] && stride=1 || stride=${STRIDE:-40}
  awk -v stride="$stride" -v words=" ${1:-} " '
    words != "  " && index(words, " " $1 " ") == 0 { next }
    $1 != "write" && $1 != "open" && $1 != "ftruncate" || NR % stride == 0 { print last = NR }
    END { if (words == "  " && last != NR) print NR }' ../calls
}
committed() { awk -v name="/step-0000000$1\$" '$1 == "rename" && $2 ~ name { moved = 1 } moved && $1 == "fsync" { print NR; exit }' ../calls; }
kill_at() {
  faulty "$@"
  got=$?
  kills=$((kills + 1))
  [ $got = 137 ] || complain "status $got, not killed: $*"
}
complain() {
  lost=$((lost + 1))
  printf '# %s\n' "$*" >&2
  sed 's/^/#   /' ../err | head -3 >&2
}
# whole RUN STEP...: these steps of RUN are there; each that is there verifies, the newest is the one that a run goes on from, and what is
# unfinished is taken by no reader.
whole() {
  run=$1
  shift
  for step in "$@"; do [ -d "$run/step-0000000$step" ] || complain "step $step is lost"; done
  newest=
  for folder in "$run"/step-*; do
    case $folder in
      *.tmp) fp8-info "$folder" >../out 2>../err && complain "$folder was read" ;;
      *) fp8-info --verify "$folder" >../out 2>../err || complain "$folder does not verify" ;;
    esac
    case $folder in *.tmp) ;; *) newest=$folder ;; esac
  done
  found=$(fp8-resume "$run" --print 2>../err)
  [ "$found" = "$newest" ] || complain "the newest is $newest, found $found"
  [ ! -s ../err ] || complain "fp8-resume --print has something to say"
}
same() {
  for file in "$1"/*; do cmp -s "$file" "$2/${file##*/}" || complain "$file differs from $2"; done
}
nothing_lost() {
  [ $lost = 0 ] && [ "$2" -gt 0 ]
  result $? "$1"
  lost=0
}
tally() {
  nothing_lost "$1: $kills kills, nothing lost" $kills
  all_kills=$((all_kills + kills))
  kills=0
}
finish() {
  [ $all_kills = 0 ] || echo "# ${0##*/}: $all_kills kills" >&2
  done_testing
}
