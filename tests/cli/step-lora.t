#!/bin/sh
# fp8-step with adapters: flags, errors, the reference on several ranks, equal bits on resuming, and the other tools on its checkpoints.
# shellcheck disable=SC2086 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
text_size=3000
. "$SRC/tests/cli/train.sh"
golden=$SRC/tests/golden
base="--out x --steps 2 --seq-length 16 --batch-size 2"
full="m.h5 --data d.h5 $base"

# --- flags
for words in "--lora-rank 0" "--lora-rank 65537" "--lora-rank 4 --lora-alpha 0" "--lora-rank 4 --lora-dropout 1.5"; do
  set -- $words
  [ $# = 2 ] || shift 2
  refused "$words is refused" "$1: " $full $words
done
for words in "--lora-alpha 4" "--lora-targets q_proj" "--lora-dropout 0.1" "--rslora"; do
  refused "${words%% *} without --lora-rank is refused" "${words%% *}: needs --lora-rank or --lora$" $full $words
done
refused "a target that matches no linear is refused" '--lora-targets: head: matches no linear of a layer of the model' $full --lora-rank 4 \
  --lora-targets q_proj,head
refused "a dropout of 1 is refused" '--lora-dropout: 1 leaves out everything' $full --lora-rank 4 --lora-dropout 1
refused "a dropout that is 1 in f32 is refused" '--lora-dropout: 0.999999999 is 1 in f32, which leaves out everything' $full --lora-rank 4 \
  --lora-dropout 0.999999999
refused "--lora with --lora-rank is refused" '--lora-rank: contradicts --lora' $full --lora some --lora-rank 4
refused "--lora with --rslora is refused" '--rslora: contradicts --lora' $full --lora some --rslora
refused "--lora of a missing folder is refused" 'some: not a folder' $full --lora some
refused "--lora of a model's folder is refused" '.*/adapter_config.json: missing; not the folder of a PEFT adapter' $full \
  --lora "$golden/models/llama3/hf"
fp8-init tiny --set intermediate_size=128 -o other.h5 >out 2>err
refused "--lora of an adapter for another model is refused" \
  '.*/adapter_model.safetensors: tensor ".*gate_proj.lora_B.weight" is \[176, 8\], expected \[128, 8\]$' other.h5 --data d.h5 $base \
  --lora "$golden/lora/llama3/init"

# --- damaged adapters: $1: change to (config, header, payload) in Python
fp8-convert "$golden/models/llama3/hf" -o llama3.h5 >out 2>err
cat >damage.py <<'END'
import json, os, struct, sys
source, folder, change = sys.argv[1:]
config = json.load(open(source + "/adapter_config.json"))
raw = open(source + "/adapter_model.safetensors", "rb").read()
size = struct.unpack("<Q", raw[:8])[0]
tensors, payload = json.loads(raw[8:8 + size]), raw[8 + size:]
tensors = {k: (v, payload[v["data_offsets"][0]:v["data_offsets"][1]]) for k, v in tensors.items() if k != "__metadata__"}
exec(change)
header, payload = {}, b""
for name, (v, data) in tensors.items():
    header[name] = v | {"data_offsets": [len(payload), len(payload) + len(data)]}
    payload += data
text = json.dumps(header).encode()
os.makedirs(folder, exist_ok=True)
json.dump(config, open(folder + "/adapter_config.json", "w"))
open(folder + "/adapter_model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + payload)
END
damage() { python3 damage.py "$golden/lora/llama3/final" damaged "$1"; }
on="llama3.h5 --data d.h5 $base --lora damaged"
damage 'tensors = {k: v for k, v in tensors.items() if ".layers.0." in k}'
refused "an adapter without the tensors of a layer is refused" \
  'damaged/adapter_model.safetensors: no lora_A for model.layers.1.self_attn.q_proj, which target_modules names$' $on
damage 'config["target_modules"].remove("v_proj")'
refused "tensors of a linear that is no target are refused" \
  'damaged/adapter_model.safetensors: tensor "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight" is on a linear that the settings do '\
'not select$' $on
for value in '{}' 'None' '-1'; do
  damage "config['target_modules'] = $value"
  refused "target_modules $value is refused" 'damaged/adapter_config.json: "target_modules" is (missing|neither a text nor an array of texts)$' $on
done
damage 'config["use_mora"] = True'
refused "an unknown setting is refused" 'damaged/adapter_config.json: "use_mora" is not supported$' $on
k=base_model.model.model.layers.1.mlp.up_proj.lora_B.weight
damage "tensors['$k'] = (tensors['$k'][0], tensors['$k'][1][:-4] + struct.pack('<f', float('nan')))"
refused "NaN in an adapter is refused" "damaged/adapter_model.safetensors: $k: holds a value that is not finite$" $on
damage 'config["use_rslora"] = True; config["lora_dropout"] = 0.25'
ok "an adapter with rslora and dropout is trained" fp8-step llama3.h5 --data d.h5 --out rslora --steps 1 --seq-length 16 --batch-size 2 --lora damaged
says "fp8-log says both" '^adapters \(LoRA\) +rank 8, alpha 16, rslora, dropout 0.25$' fp8-log rslora
damage 'config["target_modules"] = r".*\.(self_attn|mlp)\.[a-z]+_proj"'
ok "an expression selects the linears" fp8-step llama3.h5 --data d.h5 --out expression --steps 1 --seq-length 16 --batch-size 2 --lora damaged
damage 'tensors = {k: v for k, v in tensors.items() if ".layers.0." in k}; config["layers_to_transform"] = [0]'
ok "layers_to_transform selects a layer" fp8-step llama3.h5 --data d.h5 --out layer --steps 1 --seq-length 16 --batch-size 2 --lora damaged
says "whose linears are trained" '"target_modules":\["model.layers.0.self_attn.q_proj",.*"model.layers.0.mlp.down_proj"\]' head -1 layer/log.jsonl
refused "--master bf16 with adapters is refused" '--master: bf16: adapters have f32 master weights' $full --lora-rank 4 --master bf16
status "FP8 for wgrad alone gives status 3" 3 fp8-step $full --lora-rank 4 --precision fp8 --fp8-gemms wgrad
cp err said
says "the message says why" '--fp8-gemms: wgrad alone: frozen weights have no gradient' cat said

# --- the reference of PEFT on several ranks and with several micro-batches
fp8-tokenize "$SRC/share/text/tinyshakespeare.txt" -o all.h5 >out 2>err
cat >compare.py <<'END'
import json, sys
def steps(path):
    records = [json.loads(line) for line in open(path)]
    return [r for r in records if r["type"] == "step"]
got, want = steps(sys.argv[1]), steps(sys.argv[2])
loss = [abs(a["loss"] - b["loss"]) for a, b in zip(got, want)]
norm = [abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(got, want)]
print(f"# loss {max(loss):.2g}, mean {sum(loss) / len(loss):.2g}, gradient norm {max(norm):.2g}", file=sys.stderr)
sys.exit(not (len(got) == len(want) == 20 and max(loss) <= 1e-5 and sum(loss) <= 20 * 2e-6 and max(norm) <= 1e-5))
END
peft="llama3.h5 --data all.h5 --seq-length 64 --sampler sequential --steps 20 --precision fp32 --lr 1e-2 --schedule constant --weight-decay 0 \
--betas 0.9,0.95 --eps 1e-8 --clip 1"
for ranks in 2 4; do
  mpirun -n $ranks fp8-step $peft --out peft$ranks --batch-size 1 --grad-accumulation $((8 / ranks)) --lora "$golden/lora/llama3/init" \
    >peft$ranks.log 2>err
  ok "$ranks ranks give the losses of PEFT" python3 compare.py peft$ranks.log "$golden/lora/llama3/fp32.jsonl"
done
is "the scaling and the targets are those of the adapter" "$(head -1 peft2.log | grep -o '"lora":{"r":8,"lora_alpha":16[.0]*,"use_rslora":false')" \
  '"lora":{"r":8,"lora_alpha":16.0,"use_rslora":false'
is "the number of trained parameters is recorded" "$(field trainable_parameters peft2.log)" 18688

says "fp8-log says so" '^adapters \(LoRA\) +rank 8, alpha 16$' fp8-log peft2.log

# --- ranks, with dropout: the same elements are left out
few="m.h5 --data d.h5 --seq-length 16 --steps 3 --lora-rank 4 --lora-targets q_proj,*v_proj,model.layers.1.mlp.* --lora-dropout 0.3 --precision \
fp32 --lr 1e-2"
fp8-step $few --out r1 --batch-size 6 >r1.log 2>err
says "fp8-log says the adapters" '^adapters \(LoRA\) +rank 4, alpha 8, dropout 0.3 on$' fp8-log r1
says "and their linears" '^ +q_proj,\*v_proj,model.layers.1.mlp.\*$' fp8-log r1
for ranks in 2 3; do
  mpirun -n $ranks fp8-step $few --out r$ranks --batch-size $((6 / ranks)) >r$ranks.log 2>err
  near "$ranks ranks give the losses of one" r1.log r$ranks.log 1e-6
done
fp8-step $few --out r1b --batch-size 2 --grad-accumulation 3 >r1b.log 2>err
near "micro-batches give the losses of one batch" r1.log r1b.log 1e-6
mpirun -n 3 fp8-step $few --out z1 --batch-size 2 --zero 1 >z1.log 2>err
mpirun -n 3 fp8-step $few --out z3 --batch-size 2 --no-reshard-after-forward >z3.log 2>err
same_bits "--zero 1 gives equal bits" r3.log z1.log
same_bits "--no-reshard-after-forward gives equal bits" r3.log z3.log
fp8-step $few --out full --batch-size 6 --recompute full >full.log 2>err
same_bits "--recompute full leaves out the same elements" r1.log full.log
[ "$(losses r1.log)" != "$(fp8-step $few --lora-dropout 0 --out none --batch-size 6 2>err | losses /dev/stdin)" ]
result $? "dropout changes the losses"
ok "--paranoid computes a step twice with equal bits" mpirun -n 2 fp8-step $few --out paranoid --batch-size 3 --paranoid 1

# --- FP8: wgrad of a frozen weight is not computed
for recipe in tensorwise rowwise rowwise_with_gw_hp delayed current blockwise mxfp8; do
  fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 2 --lora-rank 4 --precision fp8 --recipe $recipe --out $recipe >$recipe.log 2>err
  is "recipe $recipe runs two FP8 GEMMs for each linear" "$(field fp8_gemms $recipe.log | sort -u)" 28
done
fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 2 --lora-rank 4 --precision fp8 --recipe rowwise --rowwise-single-copy --out single \
  >single.log 2>err
is "one FP8 copy serves both GEMMs" "$(field fp8_gemms single.log | sort -u)" 28

# --- resuming
for flags in "--precision bf16" "--precision fp8 --recipe tensorwise" "--precision fp8 --recipe delayed --amax-history 3" \
  "--precision fp8 --recipe rowwise --async-save"; do
  rm -rf whole parts
  run="m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 6 --lora-rank 4 --lora-dropout 0.1 --lr 1e-2 --save-every 3 $flags"
  fp8-step $run --out whole >whole.log 2>err
  fp8-step $run --out parts --until-step 3 >parts.log 2>err && fp8-step $run --out parts >>parts.log 2>err
  same_bits "a resumed run has equal losses: $flags" whole.log parts.log
  same_step "and an equal checkpoint" whole/step-00000006 parts/step-00000006
done
says "its file has no moments of frozen weights" '^ *(moments|optimizer).* 28 ' fp8-info whole/step-00000006
again="m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 6 --out whole --precision fp8 --recipe rowwise"
refused "another rank is refused" \
  'whole: this run was started with another --lora-rank \(4, now 8\); use another --out, or the same settings to resume$' $again --lora-rank 8 \
  --lora-alpha 8 --lora-dropout 0.1 --lr 1e-2
refused "no adapters are refused" 'whole: this run was started with another --lora-(rank|alpha) \(.*, now not given\)' $again --lr 1e-2
refused "other targets are refused" 'whole: this run was started with another --lora-targets \("all", now "q_proj"\)' $again --lora-rank 4 \
  --lora-targets q_proj --lora-dropout 0.1 --lr 1e-2
ok "other globs for the same linears are accepted" fp8-step $again --lora-rank 4 --lora-targets '*_proj' --lora-dropout 0.1 --lr 1e-2
fp8-step m.h5 --data d.h5 --seq-length 16 --batch-size 2 --steps 2 --out plain >out 2>err
refused "adapters in a run without are refused" 'plain: this run was started with another --lora-rank \(not given, now 4\)' m.h5 --data d.h5 \
  --seq-length 16 --batch-size 2 --steps 4 --out plain --lora-rank 4
ok "--change lora-dropout goes on with another" fp8-step $again --lora-rank 4 --lora-dropout 0.2 --lr 1e-2 --steps 8 --change lora-dropout
cp out change.log
says "the change is recorded" '"changed":\[\{"name":"lora-dropout","old":0.1,"new":0.2\}' cat change.log

# --- a checkpoint with adapters as MODEL, and in the other tools
l=whole/step-00000006
ok "a run goes on with the adapters of MODEL" fp8-step $l --data d.h5 --seq-length 16 --batch-size 2 --steps 2 --out on
is "only they are trained" "$(field trainable_parameters out)" "$(field trainable_parameters whole.log | head -1)"
refused "new adapters for such a model are refused" "--lora-rank: $l has adapters of rank 4 already" $l --data d.h5 $base --lora-rank 8
ok "fp8-info verifies it" fp8-info $l --verify
says "and names the adapters" '^model .*adapters \(LoRA\) of rank 4 on 14 linears' fp8-info $l
ok "fp8-eval scores it" fp8-eval $l --data d.h5 --seq-length 16
with=$(field loss out)
ok "fp8-convert --merge keeps the adapters" fp8-convert $l -o merged.h5 --merge
ok "fp8-convert --dtype bf16 keeps them in f32" fp8-convert $l -o b.h5 --weights-only --dtype bf16
says "which fp8-info shows" 'lora_A.weight +float32' fp8-info b.h5
ok "fp8-eval scores the merged files" fp8-eval merged.h5 --data d.h5 --seq-length 16
is "with the same loss" "$(field loss out)" "$with"
ok "fp8-quantize quantizes the model beside them" fp8-quantize merged.h5 -o q.h5 --scaling tensor
ok "fp8-quantize --dequantize keeps them" fp8-quantize q.h5 -o dq.h5 --dequantize
says "fp8-export refuses them" 'holds LoRA adapters; merge them first: fp8-convert merged.h5 --merge-lora' fp8-export merged.h5 -o folder

# --- memory
fp8-step m.h5 --data d.h5 $base -n >out 2>plain.txt
fp8-step m.h5 --data d.h5 $base -n --lora-rank 4 >out 2>lora.txt
says "-n lists the frozen weights" 'frozen weights +[0-9.]+ [KM]iB' cat lora.txt
is "the moments are those of the adapters" "$(grep -c 'moments.*KiB' lora.txt)" 1
says "-n says what is trained" ' rank 4, alpha 8 on 14 linears; [0-9]+ of [0-9]+ parameters are trained' cat lora.txt
done_testing
