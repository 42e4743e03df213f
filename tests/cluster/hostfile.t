#!/bin/sh
# Training by mpirun on the nodes of a hostfile, where ssh is replaced by a program that enters a node.
# shellcheck disable=SC2086,SC2154 # lists of words; nodes.sh sets local, flags and numbers
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
ok "the newest checkpoint verifies" fp8-info --verify "$(fp8-resume dying --print)"
ok "the run continues on two nodes" $mpirun two.hosts fp8-step $flags --out dying --steps 100000 --until-step $(($(fp8-resume dying --print | sed 's/.*-0*//') + 1))
done_testing
