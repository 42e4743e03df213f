#!/bin/sh
# fp8-log --plan: a run beside its plan, from records and a profile that are written here.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
mkdir run
cat >plan.json <<'END'
{"type":"plan","precision":"bf16","recipe":null,"machine":"M","mesh":{"dp_shard":1},"batch_size":1,"seq_length":64,"grad_accumulation":1,"memory_bytes":{"moments":100,"total":200},"step_s":[9,10],"tokens_per_s":[6,7]}
{"type":"plan","precision":"fp8","recipe":"rowwise","machine":"M","mesh":{"dp_shard":2},"batch_size":1,"seq_length":64,"grad_accumulation":1,"memory_bytes":{"moments":100,"activations":50,"program":10,"total":200},"step_s":[0.8,1.0],"tokens_per_s":[64,80],"terms_s":{"gemm_forward":[0.1,0.2],"kernels":[0.2,0.25],"casts":[0.1,0.1],"communication":[0.05,0.1],"bubble":[0.01,0.02],"update":[0,0]}}
END
{
  echo '{"type":"run","mesh":{"dp_shard":2},"config":{"batch-size":1,"seq-length":128,"grad-accumulation":1}}'
  for step in 1 2 3 4; do
    echo '{"type":"step","step":'$step',"loss":2.0,"step_s":'"$(echo '5 0.9 0.7 1.3' | cut -d' ' -f$step)"',"tokens_per_s":63.5,"data_wait_s":0.09,"memory_peak_bytes":'$((200 + step))',"precision":"fp8","recipe":"rowwise"}'
  done
  echo '{"type":"end","step":4,"reason":"finished","memory_used":{"moments":100,"activations":51,"total":151}}'
} >run/log.jsonl
cat >run/profile-3-4.json <<'END'
{"traceEvents":[{"ph":"M","name":"process_name","pid":1},
{"ph":"X","pid":0,"cat":"step","name":"step","dur":900000},{"ph":"X","pid":0,"cat":"step","name":"step","dur":900000},{"ph":"X","pid":1,"cat":"step","name":"step","dur":900000},
{"ph":"X","pid":0,"cat":"matmul forward","name":"g","dur":200000},{"ph":"X","pid":0,"cat":"matmul forward","name":"g","dur":100000},{"ph":"X","pid":1,"cat":"matmul forward","name":"g","dur":900000},
{"ph":"X","pid":0,"cat":"element-wise","name":"e","dur":400000},{"ph":"X","pid":0,"cat":"cross-entropy","name":"c","dur":200000},
{"ph":"X","pid":0,"cat":"communication","name":"x","dur":200000},{"ph":"X","pid":0,"cat":"optimizer","name":"o","dur":20000}]}
END
ok "a run is shown beside its plan" fp8-log run --plan plan.json --json
figure() { python3 -c 'import json, sys; 
few = lambda x: x and round(x, 6)
print([[[few(x) for x in f["planned"]], few(f["measured"]), f["inside"]] for f in json.load(open("out"))["figures"] if f["name"] == sys.argv[1]][0])' "$1"; }
is "the plan is that of its recipe, and times are medians without the first step" "$(figure step_s)" "[[0.8, 1.0], 0.9, True]"
is "speed below the interval is not inside" "$(figure tokens_per_s)" "[[64.0, 80.0], 63.5, False]"
is "a term is that of a step of rank 0" "$(figure terms_s.gemm_forward)" "[[0.1, 0.2], 0.15, True]"
is "kernels are those of two kinds of work" "$(figure terms_s.kernels)" "[[0.2, 0.25], 0.3, False]"
is "what ranks wait is communication and bubble" "$(figure 'terms_s.communication and bubble')" "[[0.06, 0.12], 0.1, True]"
is "a term without operations is measured as 0" "$(figure terms_s.casts)" "[[0.1, 0.1], 0.0, False]"
is "memory by category is within its plan" "$(figure memory_bytes.moments)" "[[100.0, 100.0], 100.0, True]"
is "or above it" "$(figure memory_bytes.activations)" "[[50.0, 50.0], 51.0, False]"
is "a category that no run reports is not compared" "$(figure memory_bytes.program)" "[[10.0, 10.0], None, None]"
is "the total is the largest resident memory" "$(figure memory_bytes.total)" "[[200.0, 200.0], 204.0, False]"
is "settings that differ are named, and what no plan has" \
  "$(python3 -c 'import json; r = json.load(open("out")); print(r["differences"], r["machine"], r["profile"], round(r["data_wait_share"], 4))')" \
  "['seq-length: 64 in the plan, 128 in the run'] M run/profile-3-4.json 0.0456"
says "the table has all three" '^step +800 ms to 1000 ms +900 ms +inside$' fp8-log run --plan plan.json
says "and by how much a figure is outside" '^  kernels +200 ms to 250 ms +300 ms +1\.2 x high$' fp8-log run --plan plan.json
says "the memory of a profiled run has that of the profiler" '^the memory has the records of the profiled operations, which no plan has$' \
  fp8-log run --plan plan.json
rm run/profile-3-4.json
says "a run without a profile says so" '^the run has no profile' fp8-log run --plan plan.json

refused() {
  name=$1 line=$2
  shift 2
  fp8-log "$@" >out 2>err </dev/null
  is "$name" "$? $(cat err)" "2 fp8-log: $line"
}
head -n 1 plan.json >bf16.json
refused "a plan of other recipes" "bf16.json: has no plan of fp8 rowwise, but of bf16" run --plan bf16.json
refused "a file that is no plan" "run/log.jsonl: not a plan of fp8-plan --json" run --plan run/log.jsonl
: >empty
refused "an empty plan" "empty: has no plan" run --plan empty
sed 's/\[0.8,1.0\]/[0.8]/' plan.json >wrong.json
refused "a figure that is no interval" "wrong.json: step_s: not an interval" run --plan wrong.json
echo '[]' >run/profile-1-1.json
refused "a file that is no profile" "run/profile-1-1.json: not a profile" run --plan plan.json
refused "two runs" "--plan: needs one run, found 2" run run --plan plan.json
refused "a comparison" "--plan: not together with --compare" run --plan plan.json --compare
done_testing
