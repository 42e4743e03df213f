#!/bin/sh
# fp8-step --update-rms-every: the size of the updates of both optimizers, which is the same on every mesh.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1

# steps RANKS BATCH OPTIMIZER FLAGS: the records of four steps, BATCH sequences a rank
steps() {
  ranks=$1 batch=$2 optimizer=$3
  shift 3
  rm -rf run
  mpirun -n "$ranks" fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size "$batch" --sampler sequential --steps 4 --schedule constant --lr 1e-3 \
    --weight-decay 0 --precision fp32 --optimizer "$optimizer" -q --out run "$@" 2>err </dev/null
}
# within FROM TO: whether each number of the input is; the input is not empty
within() { awk -v from="$1" -v to="$2" '$1 < from || $1 > to { bad = 1 } END { exit bad || NR == 0 }'; }

steps 1 4 adamw --update-rms-every 2 >every
is "every second record has the size" "$(grep '"update_rms_linear"' every | field step - | tr '\n' ' ')" "2 4 "
steps 1 4 adamw >without
is "without the flag none has" "$(grep -c update_rms without)" 0
is "the run does not change" "$(field loss every)" "$(field loss without)"
for optimizer in adamw muon; do
  steps 1 4 $optimizer --update-rms-every 1 >"$optimizer"
done
is "the optimizer is in the run record" "$(grep -ho '"accumulate_proven":null,"optimizer":"[a-z]*"' adamw muon | cut -d: -f3 | tr '\n' ' ')" \
  '"adamw" "muon" '
head -n 2 adamw | field update_rms_linear - | within 0.98e-3 1.0001e-3
result $? "the first update of AdamW without decay is the rate in every element"
field update_rms_linear muon | within 0.14e-3 0.24e-3
result $? "updates of Muon are about 0.2 times the rate"
for name in embedding norm head; do
  is "$name has AdamW in both" "$(head -n 2 muon | field update_rms_$name -)" "$(head -n 2 adamw | field update_rms_$name -)"
done
while read -r ranks batch optimizer flags; do
  steps "$ranks" "$batch" "$optimizer" --update-rms-every 1 $flags >many
  for name in linear embedding norm head; do
    field update_rms_$name "$optimizer" >one && field update_rms_$name many >other && paste one other |
      awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 0.01 * $1) bad = 1 } END { exit bad || NR != 4 }'
    result $? "$ranks ranks, $optimizer, $flags: the size of $name is that of one rank"
  done
done <<END
2 2 adamw --zero 3
2 4 muon --tp 2
2 2 muon --dp-replicate 2
2 2 muon --pp 2 --grad-accumulation 2
END
done_testing
