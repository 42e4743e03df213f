#!/bin/sh
# No tool replaces a file that it reads, a part of a committed checkpoint, or a file that a run writes, with --force or
# without.
# shellcheck disable=SC2086,SC2094 # lists of words on purpose; a tool is to refuse its own input
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"

mpirun -n 2 fp8-step m.h5 --data d.h5 --out run --steps 1 --seq-length 16 --batch-size 1 -q >log 2>err
result $? "a run of two ranks"
step=run/step-00000001 rank=run/step-00000001/rank-00000-of-00002.h5
fp8-export m.h5 -o hf -q >out 2>err && fp8-quantize m.h5 --scaling row -o q.h5 >out 2>err
result $? "a Hugging Face folder and a quantized checkpoint"
fp8-convert hf -o new.h5 >out 2>err && ln hf/model.safetensors hard.safetensors && ln -s hf/model.safetensors soft.safetensors
result $? "links to a file of the folder"
cp -r "$SRC/tests/golden/chat/llama3" tok && chmod -R u+w tok && echo "notes" >tok/notes
cp "$SRC/tests/golden/chat/data/openai.jsonl" chat.jsonl && cp chat.jsonl x-eval.jsonl
cp -r "$FP8_SHARE" share && chmod -R u+w share && cp share/templates/llama3.json t.json && cp share/presets/tiny.json c.json
cp "$SRC/tests/golden/accumulate/ada.safetensors" codes.safetensors && chmod u+w codes.safetensors
ln c.json hard.json && ln -s c.json soft.json && ln m.h5 hard.h5 && ln -s m.h5 soft.h5 && ln text.txt hard.txt
fp8-init c.json --set vocab_size=4096 --tokenizer tok -o t.h5 >out 2>err
mkdir holds && cp t.json holds/t.json && mkdir logs data && ln d.h5 logs/log.jsonl && ln d.h5 data/tensors.jsonl
cp run/log.jsonl other.jsonl
mkdir flags && echo '{"steps":1}' >flags.json && ln flags.json flags/log.jsonl
everything() { find . -type f ! -name out ! -name err ! -name sums ! -name tested -exec cksum {} + | LC_ALL=C sort -k3; }
everything >sums

# kept TOOL REASON OUTPUT WORDS...: the tool refuses to write OUTPUT, in one line with status 2, and every file stays
kept() {
  tool=$1 reason=$2 output=$3
  shift 3
  echo "$tool" >>tested
  FP8_SHARE=$PWD/share $tool "$@" -o "$output" -f >out 2>err
  is "$tool: $* -o $output" "$? $(cat err) $(cat out)" "2 $tool: $output: $reason "
  everything | cmp -s - sums
  result $? "and every file is as it was"
}
input="is also an input"
committed="is part of a committed checkpoint, of which no file is replaced"

for output in c.json hard.json soft.json; do kept fp8-init "$input" $output c.json; done
kept fp8-init "$input" share/presets/tiny.json tiny
for output in tok/tokenizer.json tok/notes; do kept fp8-init "$input, in tok" $output c.json --set vocab_size=4096 --tokenizer tok; done
kept fp8-init "$input" tok/tokenizer_config.json c.json --set vocab_size=4096 --tokenizer tok/tokenizer.json
kept fp8-init "$committed" $rank tiny

kept fp8-convert "$input, in $step" $rank $step --merge
kept fp8-convert "$input, in $step" $step/manifest.json $step --merge
for output in hf/model.safetensors hf/config.json hard.safetensors soft.safetensors; do kept fp8-convert "$input, in hf" $output hf; done
for output in m.h5 hard.h5 soft.h5; do kept fp8-convert "$input" $output m.h5; done
kept fp8-convert "$committed" $rank m.h5
echo '{"type":"checkpoint","path":"m.h5"}' >record
everything >sums
FP8_SHARE=$PWD/share fp8-convert - -o m.h5 -f <record >out 2>err
is "fp8-convert: a checkpoint that a record names" "$? $(cat err)" "2 fp8-convert: m.h5: $input"

kept fp8-quantize "$input" m.h5 m.h5 --scaling row
kept fp8-quantize "$input" hard.h5 m.h5 --scaling row -n
kept fp8-quantize "$input, in $step" $rank $step --scaling tensor
kept fp8-quantize "$input" q.h5 q.h5 --dequantize
kept fp8-quantize "$committed" $rank m.h5 --scaling row

kept fp8-export "shares files with the input holds/t.json" holds t.h5 --template holds/t.json
kept fp8-export "shares files with the input $step" run $step

for output in text.txt hard.txt; do kept fp8-tokenize "$input" $output text.txt; done
kept fp8-tokenize "$input" tok/tokenizer.json text.txt --tokenizer tok/tokenizer.json
for output in tok/tokenizer.json tok/notes; do kept fp8-tokenize "$input, in tok" $output text.txt --tokenizer tok; done
for output in tok/tokenizer.json tok/notes; do kept fp8-tokenize "$input, in tok" $output chat.jsonl --tokenizer tok --template t.json; done
kept fp8-tokenize "$input" t.json chat.jsonl --tokenizer tok --template t.json
kept fp8-tokenize "$input" share/templates/llama3.json chat.jsonl --tokenizer tok --template llama3
kept fp8-tokenize "$input" chat.jsonl chat.jsonl --tokenizer tok --template llama3
kept fp8-tokenize "$committed" $rank text.txt
fp8-tokenize x-eval.jsonl --tokenizer tok --template llama3 --eval-share 0.5 -o x.jsonl -f >out 2>err
is "fp8-tokenize: the output for evaluation" "$? $(cat err)" "2 fp8-tokenize: x-eval.jsonl: $input"
fp8-tokenize - -o text.txt -f <text.txt >out 2>err
is "fp8-tokenize: the file behind standard input" "$? $(cat err)" "2 fp8-tokenize: text.txt: $input"

kept fp8-log "$input" run/log.jsonl run --export csv
kept fp8-log "$committed" $step/manifest.json run --export csv
fp8-log - --export csv -o other.jsonl -f <other.jsonl >out 2>err
is "fp8-log: the file behind standard input" "$? $(cat err)" "2 fp8-log: other.jsonl: $input"

kept fp8-inspect "$input" d.h5 m.h5 --data d.h5 --seq-length 16 --recommend 1
kept fp8-inspect "$input, in $step" $rank $step --data d.h5 --seq-length 16 --recommend 1
kept fp8-inspect "$committed" $rank m.h5 --data d.h5 --seq-length 16 --recommend 1

for output in c.json hard.json; do kept fp8-bench "$input" $output --model c.json; done
kept fp8-bench "$input" share/presets/tiny.json --model tiny
kept fp8-bench "$input" codes.safetensors --gemms codes.safetensors
kept fp8-bench "$committed" $rank --model tiny
kept fp8-doctor "$committed" $rank

train="m.h5 --data d.h5 --steps 1 --seq-length 16 --batch-size 1 -q"
for words in "" -n; do
  fp8-step $train --out logs $words >out 2>err
  is "fp8-step: a log that is a link to the data $words" "$? $(cat err)" "2 fp8-step: logs/log.jsonl: $input"
  fp8-step $train --out data $words >out 2>err
  is "fp8-step: statistics that are a link to the data $words" "$? $(cat err)" "2 fp8-step: data/tensors.jsonl: $input"
  fp8-step $train --config flags.json --out flags $words >out 2>err
  is "fp8-step: a log that is a link to the config file $words" "$? $(cat err)" "2 fp8-step: flags/log.jsonl: $input"
  fp8-step $train --config flags.json --gradients flags.json -f --out new $words >out 2>err
  is "fp8-step: gradients in place of the config file $words" "$? $(cat err)" "2 fp8-step: flags.json: $input"
  fp8-step $train --out $step $words >out 2>err
  is "fp8-step: a run in a checkpoint $words" "$? $(cat err)" "2 fp8-step: $step: a checkpoint, and --out needs the folder of a run"
  fp8-step run --data d.h5 --steps 1 --seq-length 16 --batch-size 1 -q --out run $words >out 2>err
  is "fp8-step: the folder of the model as that of the run $words" "$? $(cat err)" "2 fp8-step: --out: run is MODEL too: name the folder of a new run, or go on with this run by fp8-resume run"
done
echo fp8-step >>tested

mkdir into && echo '[{"instruction":"a","output":"b"}]' >into/run.json
echo '{"set":{"file_name":"run.json"}}' >into/dataset_info.json
printf '%s\n' 'stage: sft' 'finetuning_type: full' 'dataset: set' 'template: llama3' 'cutoff_len: 64' >lf.yaml
everything >sums
fp8-import lf.yaml --dataset-dir into -o into -f >out 2>err
is "fp8-import: a file of data in the folder of the output" "$? $(cat err)" "2 fp8-import: into/run.json: $input"
everything | cmp -s - sums
result $? "and every file is as it was"
echo fp8-import >>tested
echo fp8-sweep >>tested # its output is a folder of runs, in which it replaces nothing
everything | cmp -s - sums
result $? "every file is as it was"

# --- what a run, fp8-resume or fp8-sweep writes in the folder of a run
printf 'seed = 1\n' >s.sweep
fp8-sweep s.sweep -o swept -- fp8-step m.h5 --data d.h5 --steps 2 --seq-length 16 --batch-size 1 --precision fp8 --tensor-stats-every 1 --profile 1-2 >out 2>err
result $? "a run of a sweep, with statistics and a profile"
folder=$(dirname swept/*/log.jsonl)
ln -s "$folder" linked && mkdir -p "$folder/mine" && cp "$folder/log.jsonl" "$folder/mine/run.jsonl"
everything >sums
of_run() { echo "belongs to a run, which writes $1 itself; give another name"; }
for name in log.jsonl .lock tensors.jsonl attempts.json sweep.json sweep.log profile-1-2.json step-00000009; do
  kept fp8-init "$(of_run $name)" "$folder/$name" tiny
done
for path in "$folder"/* "$folder"/.[!.]*; do
  name=${path##*/}
  [ "$name" = mine ] && continue
  for output in "linked/$name" "swept/../$folder/mine/../$name"; do kept fp8-doctor "$(of_run "$name")" "$output"; done
done
kept fp8-init "$(of_run step-00000002)" "$folder/step-00000002/new" tiny
log=$folder/log.jsonl of=$(of_run log.jsonl)
fp8-init tiny -o "$log" >out 2>err
is "fp8-init: without -f too" "$? $(cat err)" "2 fp8-init: $log: $of"
kept fp8-convert "$of" "$log" m.h5
kept fp8-quantize "$of" "$log" m.h5 --scaling row
kept fp8-export "$(of_run step-00000009)" "$folder/step-00000009" m.h5
kept fp8-tokenize "$of" "$log" text.txt
kept fp8-log "$of" "$log" other.jsonl --export csv
kept fp8-log "$(of_run step-00000009)" "$folder/step-00000009" other.jsonl --export tensorboard
kept fp8-log "$(of_run profile-1.json)" "$folder/profile-1.json" other.jsonl --export trace
kept fp8-inspect "$of" "$log" m.h5 --data d.h5 --seq-length 16 --recommend 1
kept fp8-bench "$of" "$log" --model tiny
kept fp8-bench "$of" "$log" --gemms codes.safetensors
fp8-sweep s.sweep -o "$folder/step-00000009" -- fp8-step m.h5 >out 2>err
is "fp8-sweep: $folder/step-00000009" "$? $(cat err)" "2 fp8-sweep: $folder/step-00000009: $(of_run step-00000009)"
for words in "" -n; do
  for name in log.jsonl .lock tensors.jsonl; do
    for out in "$folder" new; do
      fp8-step $train --out $out --gradients "$folder/$name" -f $words >out 2>err
      is "fp8-step --out $out: gradients as $name of a run $words" "$? $(cat err)" "2 fp8-step: $folder/$name: $(of_run $name)"
    done
  done
  mkdir empty
  fp8-step $train --out empty --gradients empty/log.jsonl $words >out 2>err
  is "fp8-step: gradients as the log of a run that has not begun $words" "$? $(cat err) $(ls -A empty)" "2 fp8-step: empty/log.jsonl: $of "
  rmdir empty
  fp8-step $train --out "$folder/step-00000009" $words >out 2>err
  is "fp8-step: a run in the place of a checkpoint of another $words" "$? $(cat err)" "2 fp8-step: $folder/step-00000009: $(of_run step-00000009)"
done
everything | cmp -s - sums
result $? "every file is as it was"
ok "a file of another name may be in the folder of a run" fp8-init tiny -o "$folder/model.h5"
ok "and a name of a run's file in another folder" fp8-init tiny -o holds/sweep.log

for tool in $(cd "$BIN" && ls fp8-*); do
  $tool --help | grep -Eq -e '^ +(-o, )?--out(put)? ' && ! grep -qx "$tool" tested
  is "$tool writes no file, or was tested" $? 1
done
done_testing
