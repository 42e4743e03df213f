#!/bin/sh
# fp8-info: contents of a checkpoint, --verify and --diff.
. "${SRC:-.}/tests/cli/lib.sh"
golden=$SRC/tests/golden/models

fp8-init tiny -o a.h5 >record 2>err
fp8-convert "$golden/llama3/hf" -o l.h5 >table 2>err
says "the model is described" '^model +llama: 2 layers, width 64, 4 heads of 16 \(2 key/value\), feed-forward 176, vocabulary 256$' fp8-info a.h5
says "the parameters are counted" '^parameters +125248, 489 KiB in 21 tensors' fp8-info a.h5
says "the precisions are counted" '^fp8 +14 of 21' fp8-info a.h5
says "a tensor has a line" '^weights/model.layers.0.mlp.up_proj.weight +bfloat16 +176x64 +fp8$' fp8-info l.h5
says "a bf16 tensor has a reason" '^weights/lm_head.weight +bfloat16 +256x64 +bf16 +LM head$' fp8-info l.h5
says "--statistics prints statistics" '^weights/model.norm.weight +float32 +64 +bf16 +1 +1 +1 +0 +norm$' fp8-info a.h5 --statistics
ok "--json succeeds" sh -c 'fp8-info a.h5 --json >json'
is "--json prints one line" "$(wc -l <json | tr -d ' ')" 1
says "the record lists the tensors" '\{"name":"weights/lm_head.weight","dtype":"float32","shape":\[256,64\],"precision":"bf16","reason":"LM head"\}' cat json
says "a record on standard input names the checkpoint" '^path +a.h5' sh -c 'fp8-info - <record'
ok "a reader that closes the pipe is no error" sh -c 'fp8-info a.h5 | head -1'

ok "--verify succeeds" fp8-info a.h5 --verify
for at in 10 300 520 20000 100000 250000 513000; do
  cp a.h5 bad.h5
  old=$(od -An -tu1 -j $at -N 1 a.h5 | tr -d ' ')
  # shellcheck disable=SC2059 # the byte is the format
  printf "\\$(printf %03o $(((old + 1) % 256)))" | dd of=bad.h5 bs=1 seek=$at conv=notrunc 2>/dev/null
  status "--verify finds a changed byte at $at" 2 fp8-info bad.h5 --verify
done
says "a damaged file is named" '^fp8-info: bad.h5: ' fp8-info bad.h5 --verify
head -c 500000 a.h5 >short.h5
status "a truncated file gives status 2" 2 fp8-info short.h5 --verify
says "a truncated file is named" 'short.h5: truncated' fp8-info short.h5
(cat a.h5 && echo more) >long.h5
status "a file with bytes appended gives status 2" 2 fp8-info long.h5

ok "--diff of a checkpoint with itself gives status 0" fp8-info a.h5 --diff a.h5
fp8-convert a.h5 --dtype bf16 -o b.h5 >table 2>err
status "--diff of rounded weights gives status 1" 1 fp8-info a.h5 --diff b.h5
cp out differences
says "--diff prints the difference of each tensor" '^weights/model.norm.weight +0 +0$' cat differences
says "--diff counts the tensors that differ" '^a.h5 and b.h5: 16 of 21 tensors differ$' cat differences
status "--diff of another model gives status 1" 1 fp8-info a.h5 --diff l.h5
says "--diff states that the configurations differ" 'the configurations differ' fp8-info a.h5 --diff l.h5
fp8-init tiny --set num_hidden_layers=1 -o one.h5 >record 2>err
says "--diff names tensors that one checkpoint lacks" '^weights/model.layers.1.input_layernorm.weight .*only in A$' fp8-info a.h5 --diff one.h5
says "--diff --json prints a record" '^\{"type":"diff","a":"a.h5","b":"b.h5","equal":false,' fp8-info a.h5 --diff b.h5 --json
status "--diff with a damaged checkpoint gives status 2" 2 fp8-info a.h5 --diff short.h5

# --- named tensors: safetensors files, folders of them, and checkpoints
head -c 20000 "$FP8_SHARE/text/tinyshakespeare.txt" >tiny.txt && fp8-tokenize tiny.txt -o d.h5 >record 2>err
# gradients NAME FLAGS...: the gradients of one step of four sequences in NAME.safetensors
gradients() {
  name=$1
  shift
  fp8-step a.h5 --data d.h5 --sampler sequential --seq-length 16 --steps 1 --precision fp32 --out "run.$name" --gradients "$name.safetensors" -q "$@" >"$name.log" 2>err
}
gradients g --batch-size 4
result $? "fp8-step --gradients"
gradients again --batch-size 2 --grad-accumulation 2
gradients other --batch-size 4 --seed 1 --sampler shuffle
ok "gradients equal themselves" fp8-info g.safetensors --diff g.safetensors
ok "micro-batches have the gradients of one batch" fp8-info g.safetensors --diff again.safetensors --bound 1e-5
status "the bound is 0 by default" 1 fp8-info g.safetensors --diff again.safetensors
status "other gradients give status 1" 1 fp8-info g.safetensors --diff other.safetensors --bound 0.1
fp8-info g.safetensors --diff other.safetensors --json >json 2>err
is "--json prints a record for each tensor" "$(grep -c '^{"type":"tensor","name":"[^"]*","relative_l2":[0-9.e-]*,"cosine":[0-9.e-]*,"factor":[0-9.e-]*}$' json) $(wc -l <json | tr -d ' ')" "21 21"
is "the worst tensor is the first" "$(sed 's/.*"relative_l2":\([^,]*\).*/\1/' json | sort -gr -c 2>&1)" ""
is "tensors within the bound are counted, not listed" "$(fp8-info g.safetensors --diff again.safetensors --bound 1e-5 | sed '1s/: [0-9.e-]*, of model[a-z0-9_.]*weight$/: X/')" "largest relative L2: X
g.safetensors and again.safetensors: 21 tensors within 1e-05"
is "and not among those outside" "$(fp8-info a.h5 --diff b.h5 --bound 1.6e-3 | awk 'NR > 1 && NF == 4' | wc -l) $(fp8-info a.h5 --diff b.h5 --bound 1.6e-3 --json | wc -l)" "$(fp8-info a.h5 --diff b.h5 --bound 1.6e-3 | sed -n 's/.*: \([0-9]*\) of 21 tensors not within 0.0016$/\1/p') 21"
ok "a checkpoint is compared with itself by weights" fp8-info a.h5 --diff a.h5 --bound 0
status "rounded weights are within a bound" 0 fp8-info a.h5 --diff b.h5 --bound 0.01
says "a checkpoint is compared with a folder" '^a.h5 and hf: 21 tensors within 0.01$' sh -c 'fp8-export b.h5 -o hf -q >/dev/null && fp8-info a.h5 --diff hf --bound 0.01'
says "a folder with FP8 weights is multiplied by its scales" ': 21 tensors within 0.1$' sh -c 'fp8-export b.h5 -o hf8 --format fp8 --any-server -q >/dev/null && fp8-info hf8 --diff b.h5 --bound 0.1'
mkdir -p folder && cp g.safetensors folder/part.safetensors
ok "a folder of safetensors files" fp8-info folder --diff g.safetensors --names torchtitan
# megatron IN OUT CODE: the tensors of IN as Megatron-LM has them after CODE, which may change t, from a name to dtype,
# shape and bytes. The model has 4 query heads and 2 key/value heads of 16.
cat >megatron.py <<'END'
import json, re, struct, sys
source, target, code = sys.argv[1:]
raw = open(source, "rb").read()
size = struct.unpack("<Q", raw[:8])[0]
t = {k: [v["dtype"], v["shape"], raw[8 + size:][slice(*v["data_offsets"])]]
     for k, v in json.loads(raw[8:8 + size]).items() if k != "__metadata__"}
def joined(parts, pieces):  # of each tensor in turn so many pieces
    runs = [[d[i * len(d) // n:(i + 1) * len(d) // n] for i in range(n)] for (_, _, d), n in zip(parts, pieces)]
    groups = min(pieces)
    data = b"".join(b"".join(r[g * len(r) // groups:(g + 1) * len(r) // groups]) for g in range(groups) for r in runs)
    return [parts[0][0], [sum(p[1][0] for p in parts)] + parts[0][1][1:], data]
exec(code)
out = {}
for layer in sorted({k.split(".")[2] for k in t if ".layers." in k}):
    of = lambda name: t["model.layers.%s.%s.weight" % (layer, name)]
    to = "module.decoder.layers.%s." % layer
    out[to + "self_attention.linear_qkv.weight"] = joined([of("self_attn.%s_proj" % p) for p in "qkv"], [4, 2, 2])
    out[to + "self_attention.linear_qkv.layer_norm_weight"] = of("input_layernorm")
    out[to + "self_attention.linear_proj.weight"] = of("self_attn.o_proj")
    out[to + "mlp.linear_fc1.weight"] = joined([of("mlp.gate_proj"), of("mlp.up_proj")], [1, 1])
    out[to + "mlp.linear_fc1.layer_norm_weight"] = of("post_attention_layernorm")
    out[to + "mlp.linear_fc2.weight"] = of("mlp.down_proj")
out["module.decoder.final_layernorm.weight"] = t["model.norm.weight"]
for ours, theirs in (("model.embed_tokens", "embedding.word_embeddings"), ("lm_head", "output_layer")):
    dtype, (rows, width), data = t[ours + ".weight"]
    out["module.%s.weight" % theirs] = [dtype, [rows + 128, width], data + bytes(128 * width * 4)]
header, payload = {}, b""
for name, (dtype, shape, data) in out.items():
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(payload), len(payload) + len(data)]}
    payload += data
text = json.dumps(header).encode()
open(target, "wb").write(struct.pack("<Q", len(text)) + text + payload)
END
megatron() { python3 megatron.py "$@"; }
megatron g.safetensors m.safetensors ''
ok "tensors of Megatron-LM are compared by the heads of our gradients" fp8-info g.safetensors --diff m.safetensors --names megatron
says "Megatron-LM may be A" '^m.safetensors and g.safetensors: 21 tensors within 0$' fp8-info m.safetensors --diff g.safetensors --names megatron
says "the heads of a checkpoint are used" '^model.layers.1.self_attn.k_proj.weight +[0-9]' fp8-info a.h5 --diff m.safetensors --names megatron
megatron g.safetensors k.safetensors 'k = t["model.layers.1.self_attn.k_proj.weight"]
v = struct.unpack("<%df" % (len(k[2]) // 4), k[2])
k[2] = struct.pack("<%df" % len(v), *[2 * x for x in v])'
status "a factor in one k gives status 1" 1 fp8-info g.safetensors --diff k.safetensors --names megatron
is "and k of that layer alone is named" "$(sed 1d out | awk '$2 != 0' | tr -s ' \n' ' ')" "model.layers.1.self_attn.k_proj.weight 1 1 2 g.safetensors and k.safetensors: 1 of 21 tensors not within 0 model.layers.1.self_attn.k_proj.weight alone differs: 2.00 times too large "
megatron g.safetensors plain.safetensors 'of_groups = joined
joined = lambda parts, pieces: of_groups(parts, [1] * len(parts))'
fp8-info g.safetensors --diff plain.safetensors --names megatron --bound 0.1 >out
is "rows in another order differ" "$(sed 1d out | awk '/^model/ && $2 > 0.1 { print $1 }' | sed 's/.*self_attn.//' | sort | uniq -c | tr -s ' \n' ' ')" " 2 k_proj.weight 2 q_proj.weight 2 v_proj.weight "
says "without heads fused tensors are refused" '^fp8-info: k.safetensors: module.decoder.layers.0.self_attention.linear_qkv.weight: is split by the number of heads, which neither side has: ' fp8-info k.safetensors --diff m.safetensors --names megatron
megatron g.safetensors torn.safetensors 'of_groups = joined
def joined(parts, pieces):
    whole = of_groups(parts, pieces)
    return [whole[0], [whole[1][0] // 2] + whole[1][1:], whole[2][:len(whole[2]) // 2]]'
status "one rank of two has status 2" 2 fp8-info g.safetensors --diff torn.safetensors --names megatron
says "says which rows are missing" '^fp8-info: torn.safetensors: module.decoder.layers.0.self_attention.linear_qkv.weight: its shape is 64x64, but 4 query and 2 key/value heads of 16 have 128 rows; parts of tensor parallelism must be merged first$' fp8-info g.safetensors --diff torn.safetensors --names megatron
says "tensors of one side are named" 'model.layers.1.input_layernorm.weight .*only in A$' fp8-info a.h5 --diff one.h5 --bound 1
status "tensors of one side give status 1" 1 fp8-info a.h5 --diff one.h5 --bound 1e300
fp8-step a.h5 --data d.h5 --seq-length 16 --batch-size 1 --steps 1 --lora-rank 4 --out lora -q --gradients lora.safetensors >log 2>err
cp g.safetensors lora
says "the checkpoint of a run is compared, not safetensors files beside it" '^lora and lora/step-00000001: 49 tensors within 0$' fp8-info lora --diff lora/step-00000001 --bound 0
says "adapters of a checkpoint match gradients with PEFT's names" '^base_model.model.model.layers.0.mlp.up_proj.lora_B.weight +[0-9]' fp8-info lora.safetensors --diff lora/step-00000001
status "--bound without --diff gives status 2" 2 fp8-info a.h5 --bound 1
status "a safetensors file without --diff gives status 2" 2 fp8-info g.safetensors
says "a safetensors file without --diff is explained" '^fp8-info: g.safetensors: a safetensors file, not a checkpoint; it can be compared, with --diff$' fp8-info g.safetensors
python3 -c 'import struct; open("none.safetensors", "wb").write(struct.pack("<Q", 2) + b"{}")'
status "a file without tensors gives status 2, not equality" 2 fp8-info none.safetensors --diff none.safetensors
says "a file without tensors is named" '^fp8-info: none.safetensors: has no tensors to compare$' fp8-info g.safetensors --diff none.safetensors
says "--verify needs digests" '^fp8-info: --verify: g.safetensors: safetensors files have no digests$' fp8-info g.safetensors --diff a.h5 --verify
head -c 1000 g.safetensors >torn.safetensors
status "a truncated safetensors file gives status 2" 2 fp8-info g.safetensors --diff torn.safetensors
status "a text gives status 2" 2 fp8-info g.safetensors --diff tiny.txt

printf 'to be or not' >text
fp8-tokenize text -o t.h5 >record 2>err
says "a token file is described" '^t.h5: a token file, not a checkpoint: 12 tokens, 1 document, vocabulary 256$' fp8-info t.h5 --verify
says "a token file has a record" '^\{"type":"tokens","path":"t.h5","tokens":12,' fp8-info t.h5 --json
status "--diff of a token file gives status 2" 2 fp8-info t.h5 --diff a.h5
says "a Hugging Face folder is refused" '^fp8-info: [^ ]*: a Hugging Face folder, not a checkpoint' fp8-info "$golden/llama3/hf"
says "a text is refused" '^fp8-info: text: ' fp8-info text
status "a missing file gives status 2" 2 fp8-info none.h5
says "a run whose only checkpoint is damaged" '^fp8-info: run: every checkpoint in it is damaged; .*step-00000007: not a checkpoint' sh -c 'mkdir -p run/step-00000007 && fp8-info run'
status "a full standard output gives status 2" 2 sh -c 'fp8-info a.h5 >/dev/full'
done_testing
