#!/bin/sh
# fp8-step and fp8-doctor of the device bundle, which are linked against an older C library.
# fp8-step loads MPI when mpirun started it, fp8-doctor always.
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
portable=${O:-$SRC/build}/portable/bin/fp8-step
if [ ! -x "$portable" ]; then
  result 0 "fp8-step of the device bundle # SKIP this build has none"
  done_testing
  exit 0
fi
export OMP_NUM_THREADS=1
ldd "$portable" | awk '$3 ~ /\/lib(dnnl|OpenCL|gomp)\.so/ { print $3 }' >libraries
# shellcheck disable=SC2046 # a list of files
ok "it and its libraries need nothing later than Ubuntu 22.04 and RHEL 9 have" "$SRC/tests/gpu/portable/check" "$portable" $(cat libraries)
status "the check fails for a program for this system" 1 "$SRC/tests/gpu/portable/check" "$BIN/fp8-step"
is "it names each library that the other system lacks, and each handle of MPI that the program exports" \
  "$(grep -cE ': needs lib(mpi\.so\.40|xxhash\.so\.0)$|: exports ompi_mpi_comm_world$' out)" 3

# Hides Open MPI from dlopen.
cat >hide.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *name, int mode) {
  void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  return name != 0 && strstr(name, "libmpi") != 0 ? 0 : next(name, mode);
}
C
cc -shared -fPIC -o hide.so hide.c
says "--version says that no MPI is linked" ', no MPI of its own, ' "$portable" --version
words="m.h5 --data d.h5 --seq-length 32 --batch-size 2 --steps 3 -q"
# shellcheck disable=SC2086 # words on purpose
{
  LD_PRELOAD=$PWD/hide.so "$portable" $words --out alone >alone.jsonl 2>err </dev/null && fp8-step $words --out usual >usual.jsonl 2>>err </dev/null
  result $? "one rank trains without Open MPI"
  same_bits "its losses are those of the usual program" alone.jsonl usual.jsonl
  mpirun -n 2 "$portable" $words --out two >two.jsonl 2>err </dev/null && mpirun -n 2 fp8-step $words --out usual2 >usual2.jsonl 2>>err </dev/null
  result $? "two ranks train under this system's mpirun"
  same_bits "their losses are those of the usual program" two.jsonl usual2.jsonl
}
# shellcheck disable=SC2086 # words on purpose
status "without Open MPI a rank ends with status 2" 2 env LD_PRELOAD="$PWD/hide.so" OMPI_COMM_WORLD_SIZE=2 "$portable" $words --out x
is "one line says what to install" "$(cat err)" \
  "fp8-step: libmpi.so.40: cannot be loaded: install Open MPI 4 or 5, or add its folder to LD_LIBRARY_PATH"
doctor=${portable%step}doctor
says "fp8-doctor finds this system's Open MPI" '^ *pass +MPI +Open MPI [45][^:]*mpirun, starts processes' "$doctor"
says "without Open MPI fp8-doctor says in one line what to install" \
  '^ *fail +MPI +libmpi.so.40: cannot be loaded: install Open MPI 4 or 5, or add its folder to LD_LIBRARY_PATH$' env LD_PRELOAD="$PWD/hide.so" \
  "$doctor"
done_testing
