#!/bin/sh
# fp8-doctor and training by mpirun on the nodes of a hostfile, where ssh is replaced by a program that enters a node.
# shellcheck disable=SC2016,SC2086,SC2154 # the shell of a node expands variables; lists of words; nodes.sh sets local, flags and numbers
. "${SRC:-.}/tests/cluster/nodes.sh"
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
cat >agent <<END
#!/bin/sh
node=\$1
shift
exec nsenter --target "\$(cat "$CLUSTER/\$node.init")" --mount --net --uts --pid --wd="$PWD" env TMPDIR="$local" sh -c "\$*"
END
chmod +x agent
printf 'node-%s slots=2\n' 1 2 >two.hosts
printf 'node-%s slots=1\n' 1 2 3 4 >four.hosts
export OMPI_MCA_oob_tcp_keepalive_time=2 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3 # mpirun notices a lost node in 5 s, not 5 minutes
mpirun="mpirun --mca plm_rsh_agent $PWD/agent --hostfile"

# --- fp8-doctor: on_2 COMMAND... writes the script on-2, which runs the command on node-2 and fp8-doctor on others
on_2() { printf '[ "$(hostname)" = node-2 ] || exec fp8-doctor --out run\nexec %s\n' "$*" >on-2; }
of_job() { sed -n '/^job$/,$s/^  pass  \([a-z -]*[a-z]\)  .*/\1/p' "$1" | paste -s -d ,; }
ok "four nodes can train together" $mpirun four.hosts fp8-doctor --out run
is "one report has what only a job has" "$(grep -c '^GPU$' out) $(of_job out)" "1 version,ranks,clocks,folder,small all-reduce,large all-reduce"
is "it counts the nodes" "$(tail -n 1 out | cut -d';' -f1) $(grep -c '^  pass  folder .*, the same folder on 4 hosts$' out)" "4 ranks on 4 hosts can train together 1"
on_2 "$O/test/other-doctor" --out run
status "a version that differs" 1 $mpirun two.hosts sh on-2
is "the node is named" "$(grep -c '^ *node-2: 0\.0\.0$' out) $(tail -n 1 out)" "1 4 ranks on 2 hosts cannot train together: version"
status "a folder that the nodes do not share" 1 $mpirun two.hosts fp8-doctor --out "$local/run"
is "the nodes are named" "$(grep -c '^  fail  folder .*: what node-1 writes there is not seen by node-2 (' out) $(tail -n 1 out)" \
  "1 4 ranks on 2 hosts cannot train together: folder"
is "nothing is left in it" "$(find "$CLUSTER/node-1" -mindepth 1 -maxdepth 1 -name '*fp8-*')" ""
if fp8-doctor | grep -q '^  pass  instruction set  *avx512_bf16'; then
  on_2 env FP8_CPU_ISA=avx2 fp8-doctor --out run
  status "an instruction set that one node lacks" 1 $mpirun two.hosts sh on-2
  is "it is named, with what makes them equal" "$(grep -c '^ *node-2: avx2, lowered' out) $(grep -c 'hint: set FP8_CPU_ISA=avx2 for all ranks' out) $(tail -n 1 out | cut -d, -f1)" \
    "1 1 4 ranks on 2 hosts cannot train together: instruction set"
fi
cat >later.c <<END
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
  int status = (int)syscall(SYS_clock_gettime, clock, time);
  time->tv_sec += clock == CLOCK_REALTIME ? 3630 : 0;
  return status;
}
END
cc -shared -fPIC -o later.so later.c
on_2 env LD_PRELOAD="$PWD/later.so" fp8-doctor --out run
says "a clock that is wrong" '^  fail  clocks +differ from that of node-1: node-2 1 h ahead$' $mpirun two.hosts sh on-2

# --- training
ok "four ranks on one machine" mpirun -n 4 fp8-step $flags $numbers --out one
for number in two four; do
  ok "on $number nodes" $mpirun $number.hosts fp8-step $flags $numbers --out $number
  same_step "they have the same bits" one/step-00000003 $number/step-00000003
done

$mpirun four.hosts fp8-step $flags --out stopped --steps 100000 >log 2>notes &
run=$!
soon grep -q '"type":"step"' log
kill -USR1 $run
wait $run
is "USR1 to mpirun stops the ranks of all nodes" "$? $(grep -o '"reason":"[a-z ]*"' log)" '75 "reason":"stopped on request"'

$mpirun four.hosts fp8-step $flags --out dying --steps 100000 --save-every 20 --keep 2 --timeout 6 >dying.log 2>notes &
run=$!
soon grep -q '"type":"checkpoint"' dying.log
crash node-4
wait $run
case $? in 0 | 2 | 3 | 4 | 75) crashed=no ;; *) crashed=yes ;; esac
is "a node that dies is a crash" $crashed yes
is "the run record has the nodes" "$(grep -o '"hosts":[^]]*\]' dying.log | tr -d '[]{}"' | sed 's/host://g; s/ranks://g')" \
  hosts:node-1,0,node-2,1,node-3,2,node-4,3
ok "the newest checkpoint verifies" fp8-info --verify "$(fp8-resume dying --print)"
ok "the run continues on two nodes" $mpirun two.hosts fp8-step $flags --out dying --steps 100000 --until-step $(($(fp8-resume dying --print | sed 's/.*-0*//') + 1))
done_testing
