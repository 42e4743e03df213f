#!/bin/sh
# Trains on the GPUs of several machines under Slurm; fp8-cluster(7) explains each line.
#   sbatch [FLAGS] gpu.sh fp8-step MODEL --data FILE --out RUN ...
#   fp8-sweep FILE --print -- fp8-step MODEL ... >commands && sbatch --array=1-$(wc -l <commands) [FLAGS] gpu.sh commands
# FLAGS of sbatch replace those below. The same line, submitted again, continues the run.
#SBATCH --job-name=fp8
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then eval "set -- $(sed -n "${SLURM_ARRAY_TASK_ID}p" "$1")"; fi
export TMPDIR="${SLURM_TMPDIR:-/tmp}" # on each machine; Open MPI has its sockets there
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
# The interface between the machines, if NCCL or Open MPI finds another first; srun -N2 -n2 ip -br -4 address prints the interfaces.
#export NCCL_SOCKET_IFNAME=ib0 OMPI_MCA_btl_tcp_if_include=ib0 UCX_NET_DEVICES=mlx5_0:1
# Without this the ranks leave MPI_Init before all have arrived, and a slow one can crash: Slurm 22.05 has no barrier between machines otherwise.
export SLURM_PMIX_FENCE=ring
trap 'asked=yes; kill -USR1 "$run"' USR1
srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task="$OMP_NUM_THREADS" "$@" --device cuda &
run=$!
wait "$run"
status=$?
# USR1 of Slurm ends the first wait. With status 75 there is a checkpoint, from which the requeued job continues.
if [ -n "${asked:-}" ]; then
  wait "$run"
  status=$?
  if [ $status = 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
fi
exit $status
