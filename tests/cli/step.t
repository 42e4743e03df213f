#!/bin/sh
# fp8-step on one rank: errors, configuration files, dry runs, records, a standard output that fails.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
golden=$SRC/tests/golden/models
base="--out x --steps 2 --seq-length 16 --batch-size 2"
full="m.h5 --data d.h5 $base"

# --- missing and unsuitable inputs
refused "no model is refused" 'MODEL: needed' --data d.h5 $base
refused "no data is refused" '--data: needed' m.h5 $base
refused "no --out is refused" '--out: needed' m.h5 --data d.h5 --steps 2
refused "no --steps is refused" '--steps: needed \(or --epochs\)' m.h5 --data d.h5 --out x
cp -r "$golden/llama3/hf" hf && chmod -R u+w hf
head -c 100000 m.h5 >short.h5
: >empty.h5
cp m.h5 flipped.h5 && printf '\001' | dd of=flipped.h5 bs=1 seek=300000 conv=notrunc 2>/dev/null
ok "a run of one step" fp8-step m.h5 --data d.h5 --out run --steps 1 --seq-length 16 --batch-size 2
refused "a missing model is refused" 'none.h5: No such file' none.h5 --data d.h5 $base
refused "a token file as model is refused" 'd.h5: a token file, not a checkpoint' d.h5 --data d.h5 $base
refused "a Hugging Face folder as model is refused" 'hf: a Hugging Face folder, not a checkpoint: .*fp8-convert' hf --data d.h5 $base
refused "a text as model is refused" 'text.txt: not a checkpoint' text.txt --data d.h5 $base
refused "a safetensors file as model is refused" 'hf/model.safetensors: a safetensors file, not a checkpoint: give its folder' hf/model.safetensors \
  --data d.h5 $base
refused "an empty file as model is refused" 'empty.h5: not a checkpoint' empty.h5 --data d.h5 $base
refused "a truncated model is refused" 'short.h5: truncated: 100000 bytes of' short.h5 --data d.h5 $base
refused "a model with a changed byte is refused" 'flipped.h5: /weights/.*: damaged' flipped.h5 --data d.h5 $base
refused "missing data is refused" 'none.h5: No such file' m.h5 --data none.h5 $base
refused "a model as data is refused" 'm.h5: a checkpoint, not a token file' m.h5 --data m.h5 $base
echo '[{"text":"a"}]' >list.json
refused "a text as data is refused with the command that helps" 'text.txt: text, not a token file; make one: fp8-tokenize text.txt -o text.h5 ' m.h5 \
  --data text.txt $base
refused "and so is JSON" 'list.json: JSON, not a token file; make one: fp8-tokenize list.json -o list.h5 ' m.h5 --data list.json $base
refused "a folder as data is refused" 'hf: not a regular file' m.h5 --data hf $base
refused "--device cuda without a GPU is refused" '--device cuda: (no |this build has no )' m.h5 --data d.h5 $base --device cuda
says "--device cuda -n plans for a GPU that is not there, in a build with CUDA" 'CUDA \(assumed\) +768 MiB|this build has no' \
  fp8-step m.h5 --data d.h5 $base --device cuda -n
says "--device cuda -n refuses what cuDNN does not compute, in a build with CUDA" \
  'attention: cuDNN: needs bf16 activations \(use --attention plain|this build has no' fp8-step m.h5 --data d.h5 $base --device cuda -n \
  --precision fp32
says "--device cuda -n --attention plain plans for it" 'CUDA \(assumed\) +768 MiB|this build has no' \
  fp8-step m.h5 --data d.h5 $base --device cuda -n --precision fp32 --attention plain
bytes='attention gradients write and read .* of workspace a step if scores are stored, .* if sums are; this run'
says "it prints what determinism of attention costs" "$bytes stores scores; determinism costs|this build has no" \
  fp8-step m.h5 --data d.h5 $base --device cuda -n
says "--no-deterministic stores sums" "$bytes stores sums, added in any order \(--no-deterministic\)|this build has no" \
  fp8-step m.h5 --data d.h5 $base --device cuda -n --no-deterministic
echo 'unsigned long cudnnGetVersion(void) { return 92800; }' >cudnn.c && cc -shared -fPIC -o libcudnn.so.9 cudnn.c
says "with cuDNN 9.28 long sequences have ordered sums" "$bytes stores sums, added in order; determinism costs no bytes|this build has no" \
  env LD_LIBRARY_PATH="$PWD" fp8-step m.h5 --data d.h5 --out x --steps 2 --seq-length 4096 --batch-size 16 --device cuda -n
echo 'unsigned long cudnnGetVersion(void) { return 91900; }' >cudnn.c && mkdir old && cc -shared -fPIC -o old/libcudnn.so.9 cudnn.c
says "with cuDNN 9.19 a note says that they store scores, and which version does not" \
  'attention: cuDNN 9.19.0 stores scores, [0-9.]+ GiB written and read a step; 9.25 or newer stores none, nor does --no-deterministic|this '\
'build has no' \
  env LD_LIBRARY_PATH="$PWD/old" fp8-step m.h5 --data d.h5 --out x --steps 2 --seq-length 4096 --batch-size 16 --device cuda -n
ok "--attention and --no-deterministic are accepted on a CPU" \
  fp8-step m.h5 --data d.h5 --out att --steps 1 --seq-length 16 --batch-size 2 --device cpu --attention plain --no-deterministic
says "the run record names the CPU's attention, which is deterministic" '"attention":"cpu","deterministic":true,"device":"CPU' head -1 att/log.jsonl
says "--print-config names the attention" '"attention": *"plain"' fp8-step m.h5 --data d.h5 $base --attention plain --print-config
refused "--paranoid with --no-deterministic is refused" '--paranoid: contradicts --no-deterministic' m.h5 --data d.h5 $base --paranoid 1 \
  --no-deterministic
refused "an unknown attention is refused" '--attention: ' m.h5 --data d.h5 $base --attention sparse
refused "a device as data is refused" '/dev/null: not a regular file' m.h5 --data /dev/null $base
head -c 5000 d.h5 >sd.h5
refused "truncated data is refused" 'sd.h5: truncated: 5000 bytes of' m.h5 --data sd.h5 $base
{ cat d.h5 && echo more; } >ld.h5
refused "data with bytes appended is refused" 'ld.h5: damaged' m.h5 --data ld.h5 $base
fp8-tokenize text.txt --vocab-size 300 -o d300.h5 >out 2>err
refused "a vocabulary larger than the model's is refused" "d300.h5: made with a vocabulary of 300, the model's has 256" m.h5 --data d300.h5 $base
refused "evaluation data with a vocabulary larger than the model's is refused" "d300.h5: made with a vocabulary of 300" $full --eval-data d300.h5 \
  --eval-every 1
fp8-init tiny --set vocab_size=512 -o m512.h5 >out 2>err
ok "a vocabulary smaller than the model's is accepted" fp8-step m512.h5 --data d300.h5 --out small --steps 1 --seq-length 16 --batch-size 2
refused "a sequence longer than the data is refused" 'd.h5: 20000 tokens are too few for sequences of 20000 tokens, which need at least 20001' $full \
  --seq-length 20000
says "-n has the notes of a run: flags without effect" '--amax-history: no effect under --recipe tensorwise' fp8-step $full --precision fp8 \
  --amax-history 16 -n
says "and a length beyond the context" '--seq-length: 200 tokens are more than the model'"'"'s context of 128' fp8-step m.h5 --data d.h5 --out x \
  --steps 1 --seq-length 200 -n
for way in "--precision bf16" "--precision fp8 --recipe rowwise" "--precision fp8 --recipe delayed" "--precision fp8 --recipe mxfp8"; do
  refused "--print-config refuses --fuse-projections with $way" '--fuse-projections: needs --precision fp8' $full $way --fuse-projections \
    --print-config
  refused "--fuse-projections with $way is refused" \
    '--fuse-projections: needs --precision fp8 and --recipe tensorwise or current, which have a scale' $full $way --fuse-projections
done
refused "--fuse-projections with adapters is refused" '--fuse-projections: adapters and FP8 codes belong to single projections' $full \
  --precision fp8 --fuse-projections --lora-rank 4
refused "--fuse-projections with --tensor-stats-every is refused" '--tensor-stats-every: measures each projection alone' $full --precision fp8 \
  --fuse-projections --tensor-stats-every 1
for flag in --aux-loss --z-loss; do
  refused "$flag of a model without experts is refused" "$flag: m.h5 has no experts" $full $flag 0.01
done
fp8-init qwen3-moe-tiny --set decoder_sparse_step=9 -o dense.h5 -q >out 2>err
for flag in "--aux-loss 0.01" "--z-loss 0.01" "--ep 2"; do
  refused "$flag of a mixture without a layer with experts is refused" "${flag% *}: dense.h5: all layers are dense, so that there are no experts" \
    dense.h5 --data d.h5 --out x --steps 1 --seq-length 32 $flag
done
for recipe in tensorwise current; do
  for flag in --no-fuse-projections --fuse-projections; do
    fp8-step m.h5 --data d.h5 --steps 9 --until-step 8 --seq-length 32 --batch-size 4 --lr 1e-2 --precision fp8 --recipe $recipe \
      --out $recipe$flag $flag >$recipe$flag.log 2>err
  done
  is "$recipe: two layers have 2 x 7 linears of 3 FP8 GEMMs" "$(field fp8_gemms $recipe--no-fuse-projections.log | sort -u)" 42
  is "$recipe: and with --fuse-projections 2 x 4" "$(field fp8_gemms $recipe--fuse-projections.log | sort -u)" 24
  is "$recipe: the share of FP8 is the same" \
    "$(field fp8_flop_share $recipe--fuse-projections.log | sort -u)" "$(field fp8_flop_share $recipe--no-fuse-projections.log | sort -u)"
  near "$recipe: the losses are close to those of single projections" $recipe--fuse-projections.log $recipe--no-fuse-projections.log 0.01
  [ "$(losses $recipe--fuse-projections.log)" != "$(losses $recipe--no-fuse-projections.log)" ]
  result $? "$recipe: but not the same"
done
says "the run record says --fuse-projections" '"fuse-projections":true' head -1 tensorwise--fuse-projections.log
ok "a run may change --fuse-projections when it is resumed" fp8-step m.h5 --data d.h5 --steps 9 --seq-length 32 --batch-size 4 --lr 1e-2 \
  --precision fp8 --out tensorwise--fuse-projections
says "fp8-log says that it changed" '^changed +from step [0-9]+: fuse-projections true to false' fp8-log tensorwise--fuse-projections
fp8-step m.h5 --data d.h5 --eval-data d.h5 --eval-every 2 --steps 2 --seq-length 32 --batch-size 4 --precision fp8 --fuse-projections --out scored \
  >out 2>err
is "fp8-eval --fuse-projections gives the loss of the run's evaluation" \
  "$(fp8-eval scored/step-00000002 --data d.h5 --seq-length 32 --batch-size 4 --precision fp8 --fuse-projections 2>err | field loss /dev/stdin)" \
  "$(grep '"type":"eval"' scored/log.jsonl | field loss /dev/stdin)"
is "the resumed run has single projections" "$(field fp8_gemms tensorwise--fuse-projections/log.jsonl | tail -1)" 42
none="m.h5 --data d.h5 --seq-length 32 --steps 1 --precision fp8 --fuse-projections --fp8-gemms *q_proj*=forward --filter *gate_proj*"
note='--fuse-projections: no effect: no layer has q, k and v, or gate and up, all in FP8 and in the same GEMMs$'
says "--fuse-projections prints a note if nothing is fused" "^fp8-step: $note" fp8-step $none --out unfused
says "so does fp8-eval" "^fp8-eval: $note" fp8-eval m.h5 --data d.h5 --seq-length 32 --precision fp8 --fuse-projections --filter '*_proj.weight' \
  --fp8-lm-head
fp8-step $full --precision fp8 --fuse-projections --filter '*.1.mlp.gate*' -n >out 2>err
is "the plan says what is fused" \
  "$? $(grep -c 'no effect' err) $(sed -n 's/^fp8-step:   fp8  *model.layers.\*.\([^ ]*\).weight.* x\([0-9]\)  one linear with /\1 \2 /p' err |
  tr '\n' ',')" "0 0 self_attn.k_proj 2 q_proj,self_attn.v_proj 2 q_proj,mlp.up_proj 1 gate_proj,"
echo here >afile
refused "--out of a file is refused" 'afile: exists and is not a folder' m.h5 --data d.h5 --steps 2 --out afile
refused "--out below a file is refused" 'afile/x: ' m.h5 --data d.h5 --steps 2 --out afile/x
refused "--out in a folder without write permission is refused" '/proc/x: cannot make the folder' m.h5 --data d.h5 --steps 2 --out /proc/x \
  --seq-length 16
refused "--out of a device is refused" '/dev/null: exists and is not a folder' m.h5 --data d.h5 --steps 2 --out /dev/null
is "the file at --out is unchanged" "$(cat afile)" here

# --- tasks of a launcher that MPI does not connect
export SLURM_STEP_NUM_TASKS=4
refused "srun without PMI is refused" \
  'srun started 4 tasks, but MPI has 1 rank: for one job type srun --mpi=pmix .*; --ranks 1 if each task is a run of its own' $full
SLURM_PROCID=1 fp8-step $full >out 2>err
is "the other tasks end without a message" "$? $(cat out err)" "2 "
ok "--ranks 1 accepts it" fp8-step m.h5 --data d.h5 --out alone --steps 1 --seq-length 16 --batch-size 2 --ranks 1
fp8-eval m.h5 --data d.h5 --seq-length 16 -q >out 2>err
is "fp8-eval prints a note" "$? $(grep -c '"type":"eval"' out) $(grep -c '^fp8-eval: srun started 4 tasks, but MPI has 1 rank: ' err)" "0 1 1"
unset SLURM_STEP_NUM_TASKS
refused "more --ranks than MPI has are refused" '--ranks: 2, but MPI has 1 rank$' $full --ranks 2

# --- a terminal, where nothing else started the process: lines instead of JSON, which never share a line with progress
says "the table of linears names fp32" '^fp8-step:   fp32  model\.layers\.\*\.self_attn\.q_proj\.weight +64x64 +x2' fp8-step m512.h5 --data d.h5 \
  --seq-length 16 --batch-size 2 --steps 2 --any-tokenizer --precision fp32 --out never -n
says "and bf16 for linears outside FP8" '^fp8-step:   bf16  lm_head\.weight' fp8-step m512.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 2 \
  --any-tokenizer --precision fp8 --out never -n
tiny="m512.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 2 --eval-data d300.h5 --eval-every 2 --any-tokenizer"
on_terminal fp8-step $tiny --precision fp8 --out seen >seen.log
is "a terminal shows a line a step" "$(tr '\r' '\n' <seen.log | grep -Ec '^(.\[K)?step [12]  loss [0-9.]+  grad norm .* tokens/s  FP8 [0-9.]+ %$')" 2
is "a line says once that FP8 is emulated" \
  "$(tr -d '\r' <seen.log | grep -c '^fp8-step: FP8 is emulated: losses are those of FP8, speeds are not$')" 1
says "a terminal shows evaluations" 'evaluation after step 2  loss [0-9.]+  perplexity [0-9.]+' cat seen.log
says "a terminal shows saves" 'saved seen/step-00000002  [0-9.e-]+ s' cat seen.log
says "the end says what was done" 'fp8-step: 2 steps, 64 tokens in [0-9.e-]+ s; loss [0-9.]+, [0-9.]+ on d300.h5; saved seen/step-00000002' \
  cat seen.log
# The line is drawn ten times a second at most, so that the first of few short steps may never be on it.
on_terminal fp8-step m512.h5 --data d.h5 --seq-length 64 --batch-size 8 --steps 30 --any-tokenizer --out seen.long >seen.log
is "not without FP8" "$(grep -c emulated seen.log)" 0
fp8-step m512.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 2 --any-tokenizer --precision fp8 --out never -n 2>err >out
is "standard error says so after the table of linears, whatever standard output is" \
  "$(grep -n -A1 -x 'fp8-step: FP8 is emulated: losses are those of FP8, speeds are not' err | sed 's/^[0-9]*[:-]//' | tail -1)" "fp8-step: memory:"
says "a terminal shows the remaining time" 'step [0-9]+/30  loss .*  ETA [0-9.e-]+ s' cat seen.log
is "no record shares a line with progress" "$(on_terminal fp8-step $tiny --json --out json | tr '\r' '\n' | grep -Ec '^(.\[K)?\{"type"')" \
  "$(wc -l <json/log.jsonl)"
on_terminal env OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 fp8-step $tiny -q --out started >started.log
is "a process that mpirun started prints JSON" "$(tr -d '\r' <started.log | grep -c '^{"type"') $(tr -d '\r' <started.log | grep -vc '^{"type"')" \
  "$(wc -l <json/log.jsonl) 0"
is "log.jsonl has the same records in every case" "$(sed 's/"type":"\([a-z]*\)".*/\1/' seen/log.jsonl)" \
  "$(sed 's/"type":"\([a-z]*\)".*/\1/' json/log.jsonl)"
says "fp8-eval prints a line on a terminal" 'evaluation  loss [0-9.]+  perplexity [0-9.]+  20 k tokens.?$' on_terminal fp8-eval m.h5 --data d.h5 \
  --seq-length 16
says "and says that FP8 is emulated" '  20 k tokens  FP8 emulated' on_terminal fp8-eval m.h5 --data d.h5 --seq-length 16 --precision fp8
is "every record has its time, in order" \
  "$(grep -Ec '"time":"20[0-9]{2}-[0-9-]*T[0-9:]*\.[0-9]{3}Z"\}$' json/log.jsonl) $(grep -o '"time":"[^"]*"' json/log.jsonl | sort -c &&
  echo sorted)" "$(wc -l <json/log.jsonl) sorted"
says "fp8-log reads the time of the steps" '^json,2,.*,[1-9][0-9]{9}(\.[0-9]+)?(,[0-9.]*)?$' fp8-log json --export csv

# --- counts
ok "counts may have units" fp8-step m.h5 --data d.h5 --out units --seq-length 16 --batch-size 2 --steps 1e3 --save-every 1k --until-step 1 --json -q
is "the run record has plain numbers" "$(head -1 out | grep -o '"steps":[0-9]*\|"save-every":[0-9]*' | tr '\n' ' ')" \
  '"steps":1000 "save-every":1000 "steps":1000 '

# --- values out of range
for words in "--seq-length 0" "--seq-length -3" "--seq-length 1.5" "--batch-size 0" "--grad-accumulation 0" "--steps 0" "--steps 1e3x" \
  "--aux-loss -1" "--z-loss nan" "--lr -1" "--lr nan" "--lr 1e-3x" "--lr +-3" "--clip -1" "--eps 2" "--warmup-ratio 1.5" \
  "--weight-decay -1" "--warmup-from -1" "--schedule-steps 0" "--decay-shape exp" "--decay none" "--betas 0.9" "--betas 0.9,1" \
  "--zero 4" "--zero 0" "--recipe columnwise" "--precision int8" "--sampler random" "--schedule sine" "--master fp16" \
  "--moments fp8" "--recompute some" "--keep -1" "--save-every -1" "--log-every 0" "--seed -1" "--until-step 0" "--epochs 0" "--activations f16" \
  "--accumulate volta" "--profile 0" "--profile 3-2" "--profile 1-" "--profile some" "--profile 999"; do
  flag=${words%% *}
  refused "$words is refused" "$flag: " $full $words
done

# --- contradicting flags
refused "--precision fp32 with --activations bf16 is refused" '--activations: bf16 contradicts --precision fp32' $full --precision fp32 \
  --activations bf16
refused "bf16 with --activations f32 is refused" '--activations: f32 needs --precision fp32 or fp8' $full --activations f32
refused "--accumulate hopper without FP8 is refused" '--accumulate: hopper needs --precision fp8' $full --accumulate hopper
refused "--accumulate hopper with mxfp8 is refused" '--accumulate: hopper: this chip has no GEMM of --recipe mxfp8' $full --precision fp8 \
  --recipe mxfp8 --accumulate hopper
refused "--steps with --epochs is refused" '--steps: contradicts --epochs' $full --epochs 1
refused "--warmup-steps with --warmup-ratio is refused" '--warmup-steps: contradicts --warmup-ratio' $full --warmup-steps 1 --warmup-ratio 0.1
refused "--warmup-from without a warmup is refused" '--warmup-from: needs --warmup-steps or --warmup-ratio' $full --warmup-from 0
refused "--warmup-from above --lr is refused" '--warmup-from: above --lr' $full --warmup-steps 1 --warmup-from 1
refused "--schedule-steps below the warmup is refused" '--schedule-steps: less than the steps of warmup' $full --warmup-steps 2 --schedule-steps 1
refused "--decay-shape with another schedule than wsd is refused" '--decay-shape: only with --schedule wsd' $full --decay-shape cosine
refused "--min-lr above --lr is refused" '--min-lr: above --lr' $full --min-lr 1
refused "--eval-every without --eval-data is refused" '--eval-every: needs --eval-data' $full --eval-every 1
refused "--decay-steps longer than the run is refused" '--decay-steps: more than the steps after warmup' $full --schedule wsd --warmup-steps 1 \
  --decay-steps 2
refused "--decay-steps with another schedule than wsd is refused" '--decay-steps: only with --schedule wsd' $full --decay-steps 1
refused "a filter that matches no tensor is refused" 'filter nothing: matches no tensor' $full --precision fp8 --filter nothing
refused "a batch of too many tokens is refused" '--batch-size: [0-9]+ sequences of 16 tokens' $full --batch-size 99999999999999
refused "a batch larger than the memory is refused" 'out of memory: .* on each rank: activations .*; use a smaller --batch-size' $full \
  --seq-length 512 --batch-size 4194303
refused "a step larger than the memory is refused" 'out of memory: the tokens of a step' $full --grad-accumulation 10000000000000

# --- FP8 that cannot run gives status 3
fp8-init tiny --set hidden_size=72 --set head_dim=18 -o odd.h5 >out 2>err
status "FP8 on a model whose width is not a multiple of 16 gives status 3" 3 fp8-step odd.h5 --data d.h5 $base --precision fp8
cp err said
says "the message names the model" '^fp8-step: odd.h5: no linear of this model can run in FP8' cat said
status "FP8 with all linears excluded gives status 3" 3 fp8-step $full --precision fp8 --filter '*'
is "the error is one line" "$(wc -l <err)" 1
status "FP8 with all linears left out as too small gives status 3" 3 fp8-step $full --precision fp8 --auto-filter
cp err said
says "the message names the flag" '(--auto-filter leaves out those that could)' cat said
ok "bf16 on a model whose width is not a multiple of 16 succeeds" fp8-step odd.h5 --data d.h5 --out odd --steps 1 --seq-length 16 --batch-size 2
[ ! -e x ]
result $? "the refused commands create no run"

# --- configuration files
fp8-step m.h5 $base --data d.h5 --precision fp8 --recipe rowwise --no-power-of-2-scales --filter '*down*' --lr 1e-3 --clip 0 --no-fp8-all-gather \
  --warmup-ratio 0.5 --print-config >run.json 2>err
result $? "--print-config succeeds"
[ ! -e x ]
result $? "--print-config creates no run"
{ printf '\357\273\277' && cat run.json; } >mark.json
ok "--config reads a file after a byte order mark" fp8-step m.h5 --config mark.json --print-config
printf 'steps: 3\nlr: 1e-3\n' >run.yaml
theirs='; fp8-import reads configurations of other trainers$'
says "a configuration in YAML is refused" \
  "^fp8-step: run.yaml: a configuration is a JSON object, which begins with \\{, and this file with steps: 3; YAML is not read$theirs" \
  fp8-step m.h5 --config run.yaml --print-config
printf '[train]\nmax_steps = 3\n' >run.toml
says "so is one in TOML" "^fp8-step: run.toml: a configuration is .* this file with \\[train\\]$theirs" fp8-step m.h5 --config run.toml --print-config
printf '{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}' >ds.json
says "and one of DeepSpeed" "^fp8-step: ds.json: \"zero_optimization\": unknown name$theirs" fp8-step m.h5 --config ds.json --print-config
ok "--config reads the printed configuration" fp8-step m.h5 --config run.json --print-config
is "the configuration is unchanged" "$(cat out)" "$(cat run.json)"
ok "a flag with --config succeeds" fp8-step m.h5 --config run.json --lr 0.25 --print-config
is "a flag changes no other value of --config" "$(grep -v '"lr"' out)" "$(grep -v '"lr"' run.json)"
is "a flag overrides --config" "$(field lr out)" " 0.25"
fp8-step m.h5 --config run.json --out a >a.log 2>err && fp8-step m.h5 $base --data d.h5 --precision fp8 --recipe rowwise --no-power-of-2-scales \
  --filter '*down*' --lr 1e-3 --clip 0 --no-fp8-all-gather --warmup-ratio 0.5 --out b >b.log 2>err
same_bits "a run from --config is equal to a run from flags" a.log b.log
fp8-step m.h5 --config run.json --power-of-2-scales --out c >c.log 2>err
[ "$(losses c.log)" != "$(losses a.log)" ]
result $? "--power-of-2-scales changes the losses"
refused "a missing configuration is refused" 'none.json: No such file' $full --config none.json
refused "an endless configuration is refused" '/dev/zero: larger than 16 MiB, the most that is read$' $full --config /dev/zero
echo '{"lr": 1' >bad.json
refused "a configuration that is not JSON is refused" 'bad.json: line 2' $full --config bad.json
echo '{"lrx": 1}' >bad.json
refused "an unknown name in a configuration is refused" 'bad.json: "lrx": unknown name' $full --config bad.json
echo '{"steps": "3"}' >bad.json
refused "a value of the wrong type in a configuration is refused" 'bad.json: "steps": expected an integer, found string' $full --config bad.json
echo '{"zero": "4"}' >bad.json
refused "a value out of range in a configuration is refused" "bad.json: \"zero\": '4' is not one of 1, 2, 3" $full --config bad.json
echo '{"precision": "fp32", "activations": "bf16"}' >bad.json
refused "contradicting values in a configuration are refused" '--activations: bf16 contradicts' $full --config bad.json

# --- dry runs
ok "-n succeeds" fp8-step $full -n --precision fp8
cp err said
is "-n writes no record and creates no run" "$(cat out)$(ls x 2>/dev/null)" ""
says "-n lists the linears in FP8" '^fp8-step: +fp8 +model.layers.\*.self_attn.q_proj.weight +64x64 +x2' cat said
says "-n states why a linear is in bf16" 'bf16 +lm_head.weight +256x64 +x1 +LM head' cat said
says "-n prints the memory plan" 'total, each rank +[0-9.]+ [KM]iB' cat said
fp8-convert "$golden/llama-tied/hf" -o tied.h5 >out 2>err
says "-n lists a tied head" 'lm_head.weight .*LM head, tied' fp8-step tied.h5 --data d.h5 $base -n --fp8-lm-head --precision fp8

# --- records
fp8-step m.h5 --data d.h5 --eval-data d.h5 --out rec --steps 4 --seq-length 16 --batch-size 2 --save-every 2 --eval-every 2 --eval-batches 3 \
  --precision fp8 >rec.log 2>err
result $? "a run with evaluations succeeds"
is "the records are in order" "$(story rec.log)" "run step1 step2 eval2 checkpoint2 step3 step4 eval4 checkpoint4 end4 "
cmp rec.log rec/log.jsonl
result $? "log.jsonl is equal to standard output"
is "each line is a JSON object with a type" "$(grep -vc '^{"type":"[a-z]*",.*}$' rec.log)" 0
number='-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?'
for f in loss grad_norm lr step_s data_wait_s tokens_per_s model_tflops saturated_share underflow_share fp8_flop_share fp8_flop_share_total; do
  is "$f is a number in every step" "$(grep '"type":"step"' rec.log | grep -Ec "\"$f\":${number}[,}]")" 4
done
for f in step tokens memory_peak_bytes fp8_gemms bf16_gemms; do
  is "$f is a whole number in every step" "$(grep '"type":"step"' rec.log | grep -Ec "\"$f\":[0-9]+[,}]")" 4
done
is "each step record states precision, recipe and emulation" \
  "$(grep -c '"precision":"fp8","recipe":"tensorwise","emulated":true,.*"skipped":false' rec.log)" 4
is "tokens counts the tokens from the start of the run" "$(grep '"type":"step"' rec.log | sed 's/.*"tokens":\([0-9]*\).*/\1/' | tr '\n' ' ')" \
  "32 64 96 128 "
is "fp8_flop_share_total, which includes attention, is below fp8_flop_share" "$(python3 -c '
import json
r = [json.loads(line) for line in open("rec.log") if "fp8_flop_share" in line]
print({0 < s["fp8_flop_share_total"] < s["fp8_flop_share"] < 1 for s in r})')" "{True}"
is "a step has 42 FP8 GEMMs" "$(field fp8_gemms rec.log | sort -u)" 42
says "the run record has versions, mesh, model and precisions" \
  '"type":"run","version":"[^"]+","config":\{.*"mesh":\{"dp_replicate":1,"dp_shard":1,.*"model":\{.*"cpu_isa":"(avx2|avx512|avx512_bf16|neon)",'\
'"memory_plan":.*"linears":\[\{"name":"model.layers.0.self_attn.q_proj.weight","precision":"fp8","reason":""\}' head -1 rec.log
says "the run record has the configuration" '"config":\{"data":"d.h5".*"seq-length":16,"batch-size":2.*"precision":"fp8"' head -1 rec.log
says "an evaluation has a record" '"type":"eval","step":2,"tokens":96,"loss":[0-9.]+,"perplexity":[0-9.]+,"precision":"fp8"' cat rec.log
is "losses are printed with all digits" "$(losses rec.log | awk 'length($2) >= 15' | wc -l)" 4
ok "fp8-log reads the log" fp8-log rec.log --json
ok "-q succeeds" fp8-step $full --out quiet -q
is "-q prints nothing on standard error" "$(cat err)" ""
fp8-step $full --out every --steps 5 --log-every 2 >every.log 2>err
is "--log-every 2 records every second step and the last" "$(story every.log)" "run step2 step4 step5 checkpoint5 end5 "
fp8-step $full --out each --steps 3 --precision fp8 >each.log 2>err
fp8-step $full --out second --steps 3 --precision fp8 --log-every 2 >second.log 2>err
is "--log-every 2 counts casts in the steps that it records" "$(field underflow_share second.log)" "$(field underflow_share each.log | sed 1d)"
ok "casts that underflow are counted" sh -c "grep -o '\"underflow_share\":[^,}]*' second.log | cut -d: -f2 | awk '\$1 > 0 { n++ } END { exit !n }'"

# --- a standard output that fails
fp8-step $full --out full --steps 3 >/dev/full 2>err -q
is "a full standard output gives status 2 and one line" "$? $(cat err)" "2 fp8-step: standard output: No space left on device"
says "a full standard output: the last step is saved" '"type":"checkpoint"' cat full/log.jsonl
ok "a full standard output: the checkpoint verifies" sh -c 'fp8-info --verify full/step-0000000?'
mkfifo pipe
head -1 pipe >first &
fp8-step $full --out closed --steps 300 -q >pipe 2>err
is "a closed pipe gives status 0 and no message" "$?$(cat err)" 0
wait $!
is "the reader gets the first line" "$(wc -l <first)" 1
is "a closed pipe: the last step is saved" "$(cd closed && echo step-* | wc -w)" 1
ok "the run resumes after a closed pipe" fp8-step $full --out closed --steps 300 -q
is "the resumed run reaches its last step" "$(tail -1 out | grep -c '"step":300')" 1

done_testing
