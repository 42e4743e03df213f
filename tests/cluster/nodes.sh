# shellcheck shell=sh disable=SC2034,SC2086 # the scripts use flags and numbers; lists of words
# A cluster on one machine, for tests: a head and the nodes node-1 to node-4, each with its own network, host name, processes, mounts and folder $local.
# Source this file first, before tests/cli/lib.sh. The script then runs again in namespaces of its own, which the kernel removes with all of their
# processes, mounts and interfaces when the script ends, also if it is killed. They have no connection to the network of the machine.
# Without root, namespaces or one of the programs in $programs the script is skipped with the reason.
#   on NODE COMMAND...     runs the command on a node, in the current folder
#   boot NODE              starts a node, with its daemons if Slurm runs
#   crash NODE             kills all processes of a node at once; its network is gone too
#   unplug NODE, plug NODE takes the cable of a node out and puts it back
#   slow NODE RATE         limits what is sent to the node, as 4mbit; fails if the kernel cannot do this
#   slurm                  starts Slurm on the head and all nodes; where that fails, the script is skipped with the last line of a log
#   idle NODE              waits at most a minute until Slurm may use a node
#   job FLAGS...           submits a job by sbatch and prints its number
#   restarts JOB           waits at most a minute until a job was requeued and runs again, with an hour. Without it
#                          Slurm lets cred_expire pass, two hours, in which a requeued job does not start
#   ends JOB STATE         waits at most a minute until a job has the state
#   flags, numbers         words of fp8-step: a small model and its data; three steps whose bits do not depend on the nodes
# The temporary folders of the script are shared by all nodes. Only $local is not, which is TMPDIR on nodes.

skip() { echo "1..0 # SKIP $*" && exit 0; }
if [ -z "${CLUSTER:-}" ]; then
  PATH=$PATH:/usr/sbin:/sbin
  [ "$(id -u)" = 0 ] || skip "namespaces need root"
  for program in ip mpirun nsenter setpriv unshare ${programs:-}; do
    command -v $program >/dev/null || skip "there is no $program; share/setup/packages cluster installs it"
  done
  own="unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc"
  why=$($own sh -c 'ip link add cluster type bridge && ip link add node-1 type veth peer name eth0 && mount -t tmpfs none /mnt && hostname x' 2>&1) ||
    skip "namespaces: $(echo "$why" | tail -n 1)"
  CLUSTER=$(mktemp -d) || exit 2
  export CLUSTER PATH
  # If this process ends, the kernel kills unshare, and with it the first process of the namespace of processes, whose end is that of all.
  setpriv --pdeathsig KILL $own env TMPDIR="$CLUSTER" sh "$0" &
  script=$!
  trap 'kill -KILL $script; wait $script; exit 2' HUP INT TERM
  trap 'rm -rf "$CLUSTER"' EXIT
  wait $script
  exit
fi

local=$CLUSTER/local
export SLURM_CONF="$CLUSTER/slurm.conf"
# Open MPI uses the network between nodes, and looks for less when it starts, as in tests/run.
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=10.8.0.0/24 OMPI_MCA_oob_tcp_if_include=10.8.0.0/24
export OMPI_MCA_btl_vader_single_copy_mechanism=none HWLOC_PLUGINS_PATH=/nonexistent PMIX_MCA_gds=hash OMP_NUM_THREADS=1
export OMPI_MCA_btl_vader_backing_directory="$local" # instead of /dev/shm, which is that of the machine
flags="m.h5 --data d.h5 --seq-length 32 --batch-size 1 --timeout 60 -q" numbers="--precision fp8 --steps 3"

repeated() {
  tries=0
  until "$@"; do
    [ $((tries += 1)) -lt 1200 ] || return 1
    sleep 0.05
  done
}
init() { cat "$CLUSTER/$1.init"; } # the first process of a node
on() {
  node=$1
  shift
  nsenter --target "$(init "$node")" --mount --net --uts --pid --wd="$PWD" env TMPDIR="$local" "$@"
}
boot() {
  mkdir -p "$CLUSTER/$1/slurmd" "$CLUSTER/$1/pmix" && rm -f "$CLUSTER/$1/up"
  # This first process also reaps what the programs of the node leave.
  # shellcheck disable=SC2016 # expanded on the node
  unshare --mount --net --uts --pid --fork --kill-child --mount-proc bash -c \
    'hostname "$1" && mount --bind "$2/$1" "$2/local" && : >"$2/local/up" && { sleep infinity & wait; }' bash "$1" "$CLUSTER" </dev/null >"$CLUSTER/$1.out" 2>&1 &
  outside=$!
  repeated [ -e "$CLUSTER/$1/up" ] || skip "$1 does not start: $(tail -n 1 "$CLUSTER/$1.out")"
  tr -d ' ' <"/proc/$outside/task/$outside/children" >"$CLUSTER/$1.init"
  ip link add "$1" type veth peer name eth0 netns "$(init "$1")" && ip link set "$1" master cluster up
  on "$1" sh -c "ip link set lo up && ip address add 10.8.0.${1#node-}/24 dev eth0 && ip link set eth0 up"
  [ ! -e "$SLURM_CONF" ] || { on "$1" $munged && on "$1" slurmd; }
}
crash() { kill -KILL "$(init "$1")"; }
unplug() { ip link set "$1" down; }
plug() { ip link set "$1" up; }
slow() { tc qdisc add dev "$1" root tbf rate "$2" burst 16kb latency 200ms 2>"$CLUSTER/tc.out"; }

munged="munged --force --num-threads=1 --key-file=$CLUSTER/munge.key --socket=$local/munge --pid-file=$local/munged.pid --log-file=$local/munged.log --seed-file=$local/munged.seed"
slurm() {
  head -c 1024 /dev/urandom >"$CLUSTER/munge.key" && chmod 400 "$CLUSTER/munge.key"
  echo "CgroupPlugin=cgroup/v1" >"$CLUSTER/cgroup.conf" # uses none, and finds nothing out about those that there are
  touch "$CLUSTER/gpu0" "$CLUSTER/gpu1" && echo "Name=gpu File=$CLUSTER/gpu[0-1]" >"$CLUSTER/gres.conf" # only Slurm sees these GPUs
  echo "PMIxCliTmpDirBase=$local/pmix" >"$CLUSTER/mpi.conf"
  cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=head
SlurmUser=root
AuthInfo=socket=$local/munge,cred_expire=7200
StateSaveLocation=$CLUSTER/state
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmctldLogFile=$CLUSTER/slurmctld.log
SlurmdSpoolDir=$local/slurmd
SlurmdPidFile=$local/slurmd.pid
SlurmdLogFile=$CLUSTER/%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=8
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
NodeName=node-[1-4] CPUs=8 RealMemory=1000 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES State=UP
END
  mkdir "$CLUSTER/state"
  $munged && slurmctld
  for n in 1 2 3 4; do on node-$n $munged && on node-$n slurmd; done
  for n in 1 2 3 4; do idle node-$n || skip "Slurm does not start: $(tail -q -n 1 "$CLUSTER/node-$n.log" "$CLUSTER/slurmctld.log" | paste -s)"; done
  srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no --mpi=pmix"
}
idle() { repeated sh -c "sinfo -h -N -n $1 -o %T | grep -qx idle"; }
job() { sbatch --parsable "$@"; }
restarts() { repeated restarted "$1"; }
restarted() {
  scontrol update JobId="$1" StartTime=now TimeLimit=60 2>"$CLUSTER/scontrol.out"
  scontrol -o show job "$1" | grep -q 'JobState=RUNNING .* Restarts=1 \|JobState=COMPLETED '
}
ends() { repeated sh -c "scontrol -o show job $1 | grep -q ' JobState=$2 '"; }

mkdir "$local" && hostname head
{ echo "127.0.0.1 localhost" && echo "10.8.0.100 head" && for n in 1 2 3 4; do echo "10.8.0.$n node-$n"; done; } >"$CLUSTER/hosts"
mount --bind "$CLUSTER/hosts" /etc/hosts
ip link set lo up && ip link add cluster type bridge && ip link set cluster up && ip address add 10.8.0.100/24 dev cluster
for n in 1 2 3 4; do boot node-$n; done
