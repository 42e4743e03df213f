#!/bin/sh
# Training under Slurm on four nodes: bits, the scripts of share/slurm, jobs that are stopped, and nodes, links and disks that fail.
# shellcheck disable=SC2016,SC2034,SC2086,SC2154 # the shells of tasks expand variables; lists of words; nodes.sh reads programs, and sets local, flags and numbers
programs="munged slurmctld slurmd srun"
. "${SRC:-.}/tests/cluster/nodes.sh"
slurm
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
cpu=$SRC/share/slurm/cpu.sh few="--ntasks-per-node=1 --cpus-per-task=1"
export SLURM_TMPDIR="$local" # as TMPDIR in the scripts
export SLURM_PMIX_FENCE=ring # as in the scripts
task() { srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task=1 "$@"; }
verifies() { for s in "$1"/step-????????; do fp8-info --verify "$s" || return 1; done; }
first_steps() { sed -n 's/.*"first_step":\([0-9]*\),.*/\1/p' "$1/log.jsonl" | paste -s -d ' '; }
# Jobs that run beside others leave them the cores. Rank 1 takes a second to end after main, while srun sends TERM,
# because rank 0 has ended with a status.
sleeping waits.c <<'END' && cc -shared -fPIC -o waits.so waits.c
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((destructor)) static void ends_late(void) {
  const char *rank = getenv("SLURM_PROCID");
  if (rank && !strcmp(rank, "1") && !strcmp(program_invocation_short_name, "fp8-step")) sleep(1);
}
END

# --- a job that Slurm stops before its time limit; the end of the script waits for it
echo '{"steps":100000}' >limited.json
limited=$(job --nodelist=node-1,node-2 $few --time=60 --signal=B:USR1@50 --export="ALL,LD_PRELOAD=$PWD/waits.so" "$cpu" fp8-step $flags --out limited --config limited.json)

# --- a node that dies, and a job that Slurm requeues therefore
dying=$(job --exclude=node-1 $few --export="ALL,LD_PRELOAD=$PWD/waits.so" "$cpu" fp8-step $flags --out dying --steps 60 --save-every 10)
soon grep -q '"type":"checkpoint"' dying/log.jsonl
crash node-3
scontrol update NodeName=node-3 State=down Reason=gone # as Slurm does itself after SlurmdTimeout
soon grep -q '"type":"step"' limited/log.jsonl
scontrol update JobId="$limited" TimeLimit=1 # Slurm checks limits every 30 seconds, and asks now for a stop at the next check

# --- the bits of one node
ok "four ranks on one node" task -N1 -n4 -w node-1 fp8-step $flags $numbers --out one
ok "on two nodes" task -N2 -n4 -x node-3 fp8-step $flags $numbers --out two
same_step "they have the same bits" one/step-00000003 two/step-00000003
ok "tp on one node" task -N1 -n4 -w node-1 fp8-step $flags $numbers --tp 2 --out tp
ok "tp inside nodes, data parallel across two" task -N2 -n4 -x node-3 fp8-step $flags $numbers --tp 2 --out tp2
same_step "they have the same bits" tp/step-00000003 tp2/step-00000003
ok "mpirun in an allocation" salloc -Q -N2 -n4 -x node-3 mpirun fp8-step $flags $numbers --out allocated
same_step "it has the same bits" one/step-00000003 allocated/step-00000003

# --- tasks that nothing connects
status "srun --mpi=none is refused" 2 srun --mpi=none -N2 -n2 -x node-3 fp8-step $flags --steps 1 --out none
is "one task prints one line, and nothing is written" \
  "$(grep -c '^fp8-step: srun started 2 tasks, but MPI has 1 rank: ' err) $(grep -c '^fp8-' err) $(ls -d none 2>/dev/null)" "1 1 "
ok "tasks that are runs of their own" srun --mpi=none -N2 -n2 -x node-3 sh -c "exec fp8-step $flags --ranks 1 --steps 1 --out alone\$SLURM_PROCID"
same_step "each trains alone" alone0/step-00000001 alone1/step-00000001
says "srun connects the ranks of fp8-doctor" '^4 ranks on 2 hosts can train together' task -N2 -n4 -x node-3 fp8-doctor
ok "a batch script starts ranks" sbatch -Q --wait -N1 -n1 --wrap "fp8-step $flags --steps 1 --out batch && mpirun -n 2 fp8-step $flags --steps 2 --out batch2"

# --- a folder that is not shared
status "a folder of a run that the nodes do not share is refused" 2 task -N2 -n2 -x node-3 fp8-step $flags --steps 1 --out "$local/run"
is "one line names the node, and nothing is left" \
  "$(grep -c '^fp8-step: .*: node-[24] does not see what node-1 writes there' err) $(grep -c '^fp8-' err) $(find \
  "$CLUSTER/node-1" -mindepth 1 -maxdepth 1 -name '*fp8-*' | wc -l)" "1 1 0"

# --- the script for GPUs, and an array of a sweep
gpu=$(job -N1 --gpus-per-node=1 --ntasks-per-node=1 --cpus-per-task=1 "$SRC/share/slurm/gpu.sh" fp8-step ${flags% -q} --steps 1 --out gpu -n)
ok "the script for GPUs plans for one, or this build has none" repeated grep -Eq 'CUDA \(assumed\) +768 MiB|--device cuda: this build has no' "fp8-$gpu.out"
printf '%s\n' 'seed = 1, 2' 'side bf16: --precision bf16' 'side fp8: --precision fp8' >two.sweep
fp8-sweep two.sweep --print -- fp8-step $flags --steps 2 >commands
array=$(job --array=1-4 --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 "$cpu" commands)
ok "an array of a sweep ends" repeated sh -c '[ "$(ls -d two/*/step-00000002 2>/dev/null | wc -l)" = 4 ] && [ -z "$(squeue -h -j '"$array"')" ]'
is "each run has two ranks" "$(cat two/*/log.jsonl | grep -o '"dp_shard":[0-9]' | paste -s -d ' ')" '"dp_shard":2 "dp_shard":2 "dp_shard":2 "dp_shard":2'

# --- the node that died
restarts "$dying"
ok "the job of a node that died is started again and ends" ends "$dying" COMPLETED
is "it continued from a checkpoint" "$(first_steps dying | sed 's/^1 [1-9]*1$/continued/')" continued
ok "its checkpoints verify" verifies dying
boot node-3 && idle node-3
ok "four nodes" task -N4 -n4 fp8-step $flags $numbers --out four
same_step "they have the bits of one" one/step-00000003 four/step-00000003

# --- signals
cancelled=$(job -N2 $few "$cpu" fp8-step $flags --out cancelled --steps 100000)
soon grep -q '"type":"step"' cancelled/log.jsonl
scancel "$cancelled"
ok "scancel ends a job" ends "$cancelled" CANCELLED
ok "the job has saved" repeated grep -q '"reason":"stopped on request"' cancelled/log.jsonl
is "it is not requeued" "$(scontrol -o show job "$cancelled" | grep -o ' JobState=[A-Z]*\| Restarts=[0-9]*' | paste -s)" "$(printf ' JobState=CANCELLED\t Restarts=0')"
ok "its checkpoints verify" verifies cancelled
stopped=$(job -N2 $few --export="ALL,LD_PRELOAD=$PWD/waits.so" "$cpu" fp8-step $flags --out stopped --steps 100000)
soon grep -q '"type":"step"' stopped/log.jsonl
scancel --signal=USR1 "$stopped"
ok "a checkpoint that the user asks for ends a job" ends "$stopped" FAILED
says "it is not requeued either" ' Restarts=0 .* ExitCode=75:0 ' scontrol -o show job "$stopped"
crashed=$(job -N2 $few "$cpu" sh -c '[ $SLURM_PROCID = 0 ] || kill -SEGV $$; exec fp8-step "$@"' sh $flags --out crashed --steps 1)
ok "a rank that crashes ends a job" ends "$crashed" FAILED
says "nor is a crash requeued" ' Restarts=0 ' scontrol -o show job "$crashed"
by_mpirun=$(job -N2 -n2 --wrap "mpirun fp8-step $flags --out by_mpirun --steps 100000")
soon grep -q '"type":"step"' by_mpirun/log.jsonl
scancel --signal=USR1 "$by_mpirun"
ok "USR1 of Slurm stops the ranks of mpirun" ends "$by_mpirun" FAILED
says "with status 75" ' ExitCode=75:0 ' scontrol -o show job "$by_mpirun"

# --- a link that is cut for less than --timeout, and for longer
task -N2 -n2 -w node-3,node-4 fp8-step $flags --out cut --steps 100000 --save-every 50 --keep 2 --timeout 6 >cut.log 2>notes &
run=$!
soon grep -q '"type":"checkpoint"' cut.log
unplug node-4 && sleep 1 && plug node-4
at=$(field step cut.log | tail -n 1)
ok "after a second without a link the run goes on" soon grep -q "\"step\":$((at + 10))," cut.log
is "it prints no message" "$(cat notes)" ""
unplug node-4
wait $run
case $? in 0 | 2 | 3 | 4 | 75) crashed=no ;; *) crashed=yes ;; esac
is "a link that stays cut is a crash, and the lost rank is named" "$crashed $(grep -cE '^fp8-step: rank 1 \(node-4\) did not answer in .* \(step [0-9]+\) within 6 s$' notes)" "yes 1"
plug node-4
ok "its checkpoints verify" verifies cut

# --- a disk that is full on one node
ok "a disk that is full on one node for three saves" task -N2 -n2 -w node-1,node-2 sh -c \
  '[ "$(hostname)" = node-1 ] || export FAULT_UNDER=$PWD/full FAULT_DO=enospc FAULT_AT=1 FAULT_FOR=3 FAULT_CALLS=write FAULT_PATH=.h5 LD_PRELOAD='"$O/test/fault.so"'
   exec fp8-step "$@"' sh $flags --out full --steps 40 --save-every 2
is "rank 1 is named" "$(grep -c '^fp8-step: step 2 is not saved: rank 1 (node-2): .*: No space left on device' err)" 1
ok "the last step is saved" fp8-info --verify full/step-00000040

# --- a slow link
if slow node-2 8mbit; then
  ok "a slow link" task -N2 -n4 -w node-1,node-2 fp8-step $flags $numbers --out slow
  same_step "it changes no bits" one/step-00000003 slow/step-00000003
else
  echo "# no slow link: $(head -n 1 "$CLUSTER/tc.out")"
fi

# --- the time limit
soon grep -q '"reason":"stopped on request"' limited/log.jsonl
stopped=$(field step limited/log.jsonl | tail -n 1)
echo "{\"steps\":100000,\"until-step\":$((stopped + 2))}" >limited.json
restarts "$limited"
ok "a job that was stopped before its limit is requeued and ends" ends "$limited" COMPLETED
is "it continued where it was stopped" "$(first_steps limited)" "1 $((stopped + 1))"
is "its output has both starts" "$(grep -c '"type":"run"' "fp8-$limited.out")" 2
done_testing
