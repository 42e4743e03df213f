# shellcheck shell=sh
# Functions for tests of training. Source this file after lib.sh: it makes m.h5, a tiny model, and d.h5, 20000 tokens.
#   losses FILE                prints a line per step record: step, loss, gradient norm
#   story FILE                 prints the type of each record, followed by its step
#   field NAME FILE            prints the values of a field, one line per record that has the field
#   near NAME FILE FILE TOL    passes if the losses of two logs have a relative difference of at most TOL
#   same_bits NAME FILE FILE   passes if losses and gradient norms of two logs are equal to the last digit
#   refused NAME REGEX WORDS   passes if `fp8-step WORDS` gives status 2, prints one line that matches, and creates no folder x
#   same_step NAME A B         passes if two checkpoints have equal weights and moments
fp8-init tiny -o m.h5 >out 2>err && head -c 20000 "$FP8_SHARE/text/tinyshakespeare.txt" >text.txt && fp8-tokenize text.txt -o d.h5 >>out 2>>err
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
