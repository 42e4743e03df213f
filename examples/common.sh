# shellcheck shell=bash
# What the examples share. Source this file after setting `root`, the folder of the sources, and BIN, the folder of the programs. Afterwards programs
# are found by name, mpirun works for root and with more ranks than cores, and ranks have one thread each.
#   say TITLE            prints the title of a section
#   show COMMAND         prints a command
#   run COMMAND...       prints a command and runs it
#   begin FOLDER TITLE   changes to the folder, which must be new, empty, or made by this function, and is then deleted first
# `terminal` is empty unless standard output is a terminal.
export PATH=$BIN:$PATH FP8_SHARE=${root:?}/share OMP_NUM_THREADS=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers may forbid the default, CMA
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi

terminal=
if [ -t 1 ] && [ -n "${TERM:-}" ] && [ "${TERM:-}" != dumb ]; then terminal=yes; fi
bold='' plain=''
if [ -n "$terminal" ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; fi

say() { printf '\n%s%s%s\n\n' "$bold" "$1" "$plain"; }
show() { printf '$ %s\n' "$*"; }
run() {
  show "$@"
  "$@"
}

begin() {
  local mark=.fp8-example
  if [ -e "$1" ] && [ ! -d "$1" ]; then
    echo "example: $1: exists and is not a folder" >&2
    exit 2
  fi
  if [ -n "$(ls -A "$1" 2>/dev/null)" ] && [ ! -e "$1/$mark" ]; then
    echo "example: $1: holds other files; name a new folder" >&2
    exit 2
  fi
  rm -rf -- "$1"
  mkdir -p -- "$1"
  cd -- "$1" || exit 2
  touch "$mark"
  SECONDS=0
  printf '%s\n' "$bold$2$plain" "in $(pwd)"
}
