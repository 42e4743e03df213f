#!/bin/sh
# Steps on a mesh of ranks compared with those of one rank, or of another mesh: bits, or numbers within bounds. The last
# test says which pairs of a dimension and a setting the table has to have.
# ROW=<name> runs one row. PROGRAM=<path> runs meshes with another fp8-step than references, and MADE=<folder> keeps models,
# data and references for the next call; tests/defects/run sets them.
# shellcheck disable=SC2086,SC2046 # lists of words on purpose
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/cli/train.sh"
export OMP_NUM_THREADS=1
made=${MADE:-$work}

# A row: name, or "long: " and a name; model and data; flags of both; ranks and flags of the reference; ranks and flags of the
# mesh; bound(). A step has 24 sequences of 16 tokens, which data-parallel ranks and micro-batches divide. Where a row has no
# others, the flags are --steps 2 --lr 1e-3 and --precision fp32, or fp8 with a recipe; words() has those in capitals.
sed '/^$/d; s/ *| */|/g' >table <<'END'
micro           | tiny separate    | | 1 | 1 --grad-accumulation 2 | f32
micro-12        | deep packed      | | 1 | 1 --grad-accumulation 12 --recompute full | f32
recompute       | tiny joined      | | 2 | 2 --recompute full | bits
recompute-bf16  | tiny joined      | --precision bf16 | 2 | 2 --recompute selective | bits
recompute-fp8   | tiny joined      | --recipe tensorwise | 2 | 2 --recompute full | bits
long: recompute-fp8-2 | tiny joined      | --recipe tensorwise | 2 | 2 --recompute selective | bits
long: recompute-2 | tiny joined    | | 2 | 2 --recompute selective | bits
long: recompute-bf16-2 | tiny joined | --precision bf16 | 2 | 2 --recompute full | bits
profiled        | tiny joined      | | 2 | 2 --profile 1-2 | bits
evaluated       | sparse separate  | BALANCED --grad-accumulation 2 | 1 | 1 EVALUATED | bits

shards          | tiny separate    | | 1 | 2 --grad-accumulation 2 | f32
shards-zero-1   | qwen3 packed     | | 1 | 3 --zero 1 --recompute selective --grad-accumulation 2 | f32
shards-zero-2   | qwen2 joined     | --steps 4 EVALUATED | 1 | 4 --zero 2 --recompute full | f32
shards-zero-3   | tied joined      | SAMPLED | 1 | 3 --zero 3 --recompute full | f32
shards-lora     | tiny separate    | DROPOUT | 1 | 2 --zero 2 --grad-accumulation 2 --recompute selective | f32
shards-kept     | tiny joined      | | 3 | 3 --no-reshard-after-forward | bits
long: few-zero-1 | few joined       | | 1 | 4 --zero 1 | f32
few-zero-3      | few joined       | | 1 | 4 --zero 3 --grad-accumulation 2 | f32
long: few-zero-2 | few joined      | | 1 | 4 --zero 2 --grad-accumulation 2 | f32
long: shards-2  | tiny joined      | | 1 | 2 --zero 2 | f32
long: shards-3  | tiny joined      | | 1 | 3 --zero 1 | f32
long: shards-4  | tiny joined      | | 1 | 4 --zero 1 | f32
long: shards-8  | tiny packed      | DROPOUT | 1 | 8 --zero 3 | f32

copies          | tiny separate    | | 1 | 2 --dp-replicate 2 --paranoid 1 | f32
copies-3        | qwen3 joined     | | 1 | 3 --dp-replicate 3 --recompute selective | f32
copies-4        | qwen2 packed     | | 1 | 4 --dp-replicate 4 --grad-accumulation 2 --zero 1 | f32
copies-shards   | tied separate    | | 1 | 4 --dp-replicate 2 --zero 2 --recompute full --grad-accumulation 3 | f32
long: copies-shards-8 | tiny packed      | | 1 | 8 --dp-replicate 2 --zero 2 --recompute selective | f32
copies-lora     | tiny joined      | DROPOUT | 1 | 4 --dp-replicate 2 --zero 2 --recompute full --grad-accumulation 2 | f32
long: copies-shards-4 | tiny joined | | 1 | 4 --dp-replicate 2 --zero 1 --grad-accumulation 3 | f32
long: copies-4-shards | tiny joined | | 1 | 8 --dp-replicate 4 --recompute full | f32
long: copies-8  | tiny joined      | | 1 | 8 --dp-replicate 8 --paranoid 1 | f32

narrow          | tiny joined      | | 1 | 4 --reduce-dtype bf16 --grad-accumulation 2 | rounded
narrow-copies   | tiny separate    | | 1 | 3 --dp-replicate 3 --reduce-dtype bf16 | rounded
narrow-both     | qwen3 packed     | | 1 | 4 --dp-replicate 2 --reduce-dtype bf16 --zero 1 --grad-accumulation 2 | rounded
long: narrow-6  | qwen2 packed     | | 1 | 6 --dp-replicate 3 --reduce-dtype bf16 --zero 2 | rounded

tp              | qwen3 separate   | | 1 | 2 --tp 2 | f32
tp-biases       | tied separate    | --decay all --weight-decay 1 | 1 | 2 --tp 2 --paranoid 1 --grad-accumulation 3 | f32
tp-4            | qwen2 packed     | | 1 | 4 --tp 4 --recompute selective --zero 1 | f32
tp-4-tied       | tied joined      | EVALUATED SAMPLED | 1 | 4 --tp 4 --zero 2 --recompute full | f32
tp-shards       | qwen3 packed     | | 1 | 4 --tp 2 --zero 2 --recompute full --grad-accumulation 2 | f32
tp-shards-3     | tiny joined      | | 1 | 6 --tp 2 --zero 3 --async-save --save-every 1 | f32
tp-copies       | qwen2 joined     | | 1 | 4 --tp 2 --dp-replicate 2 --zero 1 --recompute selective | f32
tp-lora         | tied packed      | DROPOUT | 1 | 4 --tp 2 --dp-replicate 2 --zero 2 --grad-accumulation 2 | f32
tp-experts      | mixture joined   | BALANCED --grad-accumulation 2 | 1 | 2 --tp 2 | f32
tp-mixtral      | mixtral packed   | BALANCED | 1 | 4 --tp 4 --recompute full | f32
long: tp-8      | tiny joined      | | 1 | 8 --tp 2 --dp-replicate 2 --zero 1 --paranoid 1 | f32
long: tp-4-shards | tiny separate  | | 1 | 8 --tp 4 --zero 1 | f32
long: tp-lora-8 | qwen3 joined     | DROPOUT | 1 | 8 --tp 2 --dp-replicate 2 --zero 3 --recompute selective | f32
long: tp-experts-lora | mixture packed | --lora-rank 4 | 1 | 4 --tp 2 --recompute selective | f32

ep              | sparse separate  | BALANCED --grad-accumulation 2 | 1 | 2 --ep 2 | f32
ep-3            | mixture packed   | BALANCED | 1 | 3 --ep 3 --zero 1 --recompute full | f32
ep-4            | mixture joined   | EVALUATED SAMPLED | 1 | 4 --ep 4 --expert-rows 1 --recompute selective | f32
ep-shards       | mixtral separate | BALANCED | 1 | 4 --ep 2 --zero 2 | f32
ep-copies       | mixture packed   | BALANCED | 1 | 8 --ep 2 --dp-replicate 2 --expert-rows 1 --zero 2 --recompute selective | f32
ep-lora         | mixture separate | --lora-rank 4 | 1 | 4 --ep 2 --dp-replicate 2 --recompute full --paranoid 1 | f32
ep-tp           | mixture joined   | BALANCED --grad-accumulation 2 | 1 | 4 --ep 4 --tp 2 --zero 1 | f32
ep-tp-copies    | mixtral packed   | BALANCED | 1 | 8 --ep 2 --tp 2 --dp-replicate 2 --expert-rows 1 --paranoid 1 | f32
passes          | full flat        | | 1 | 4 --ep 4 --expert-rows 1 | f32
idle            | sparse separate  | BALANCED --grad-accumulation 2 | 1 | 2 --dp-replicate 2 --paranoid 1 | f32
long: ep-tp-2   | mixture packed   | BALANCED | 1 | 2 --ep 2 --tp 2 --paranoid 1 | f32
long: ep-8      | mixture joined   | BALANCED | 1 | 8 --ep 4 --dp-replicate 2 --expert-rows 1 --zero 2 | f32

pp              | tiny separate    | --grad-accumulation 4 | 1 | 2 --pp 2 | bits
pp-stages       | deep joined      | --grad-accumulation 4 EVALUATED | 1 | 2 --pp 2 --stages 1,3 | bits
pp-stages-3     | deep joined      | --grad-accumulation 4 EVALUATED | 1 | 3 --pp 3 --stages 2,1,1 --save-every 1 --async-save | bits
pp-once         | deep joined      | --precision bf16 | 1 | 4 --pp 4 | bits
pp-twice        | deep joined      | --precision bf16 --grad-accumulation 2 | 1 | 4 --pp 4 --zero 1 | bits
pp-tied         | tied separate    | --grad-accumulation 2 | 1 | 2 --pp 2 --paranoid 1 | f32
pp-4            | tied packed      | --grad-accumulation 3 | 1 | 4 --pp 4 --recompute full | f32
pp-copies       | tied separate    | --grad-accumulation 3 | 1 | 4 --pp 2 --dp-replicate 2 --zero 2 --paranoid 1 | f32
pp-shards       | qwen3 packed     | --grad-accumulation 2 | 1 | 4 --pp 2 --zero 3 --recompute selective | f32
pp-tp           | qwen2 joined     | --grad-accumulation 2 | 1 | 4 --pp 2 --tp 2 --zero 1 | f32
pp-lora         | tied packed      | --grad-accumulation 3 DROPOUT | 1 | 4 --pp 2 --zero 3 | f32
pp-experts      | mixture joined   | --grad-accumulation 2 BALANCED | 1 | 2 --pp 2 | f32
pp-ep           | mixtral packed   | --grad-accumulation 2 BALANCED | 1 | 4 --pp 2 --ep 2 --zero 2 | f32
pp-tp-ep        | mixture separate | --grad-accumulation 3 BALANCED | 1 | 8 --pp 2 --tp 2 --ep 4 --paranoid 1 | f32
long: pp-tp-ep-4 | mixture separate | --grad-accumulation 3 BALANCED | 1 | 4 --pp 2 --tp 2 --ep 2 --paranoid 1 | f32
long: pp-8      | tied separate    | --grad-accumulation 2 | 1 | 8 --pp 2 --dp-replicate 2 --zero 2 --paranoid 1 | f32
long: pp-tp-8   | tied joined      | --grad-accumulation 2 | 1 | 8 --pp 2 --tp 2 --zero 3 | f32
long: pp-shards-8 | deep joined    | --grad-accumulation 2 | 1 | 8 --pp 2 --zero 2 --async-save --save-every 1 | f32
long: pp-copies-6 | mixture joined | --grad-accumulation 2 BALANCED | 1 | 6 --pp 3 --dp-replicate 2 | f32
long: pp-lora-4 | mixture joined   | --grad-accumulation 3 --lora-rank 4 | 1 | 4 --pp 4 | f32

muon-shards     | qwen3 packed     | MUON | 1 | 3 --zero 3 --grad-accumulation 2 | f32
muon-zero-1     | tied separate    | MUON --muon-scale original | 1 | 4 --zero 1 --recompute full | f32
muon-zero-2     | few joined       | MUON | 1 | 4 --zero 2 | f32
muon-zeros      | tiny joined      | MUON | 3 | 3 --zero 1 | bits
muon-copies     | qwen2 joined     | MUON | 1 | 4 --dp-replicate 2 --paranoid 1 | f32
muon-tp         | qwen3 packed     | MUON | 1 | 4 --tp 4 --paranoid 1 | f32
muon-tp-shards  | qwen2 joined     | MUON | 1 | 4 --tp 2 --zero 2 | f32
muon-pp         | deep joined      | MUON --grad-accumulation 4 | 1 | 3 --pp 3 --save-every 1 --async-save | bits
muon-pp-tp      | qwen2 joined     | MUON --grad-accumulation 2 | 1 | 4 --pp 2 --tp 2 | f32
muon-pp-experts | mixture joined   | MUON --grad-accumulation 2 BALANCED | 1 | 2 --pp 2 | f32
muon-ep         | mixture joined   | MUON BALANCED | 1 | 4 --ep 2 --zero 3 | f32
muon-ep-tp      | mixtral packed   | MUON BALANCED | 1 | 8 --ep 2 --tp 2 --dp-replicate 2 --paranoid 1 | f32
muon-lora       | tiny joined      | MUON DROPOUT | 1 | 2 --zero 2 | f32
muon-bf16       | deep joined      | MUON --precision bf16 --master bf16 --moments bf16 --grad-accumulation 2 | 1 | 2 --pp 2 | bits
muon-codes      | tiny joined      | MUON --recipe delayed | 3 | 3 --zero 1 | bits

bf16            | tiny joined      | --precision bf16 | 1 | 2 | codes
rowwise         | tiny joined      | --recipe rowwise | 1 | 3 | codes
rowwise-gw      | tiny joined      | --recipe rowwise_with_gw_hp | 1 | 3 | codes
rowwise-single  | deep joined      | --recipe rowwise --rowwise-single-copy --filter *.layers.0.* | 1 | 2 | codes
blockwise       | tiny joined      | --recipe blockwise | 1 | 3 | codes
mxfp8           | tiny joined      | --recipe mxfp8 | 1 | 4 --dp-replicate 2 | codes
nvfp4           | tiny joined      | --recipe nvfp4 --steps 1 | 1 --grad-accumulation 3 | 3 | f32
nvfp4-nearest   | tiny joined      | --recipe nvfp4 --no-hadamard --no-stochastic-gradients | 1 --grad-accumulation 2 | 2 --zero 2 | flips
delayed         | tiny joined      | --recipe delayed | 1 | 3 | scales
tensorwise      | tiny joined      | --recipe tensorwise | 1 | 3 | scales
long: hopper | tiny joined      | --recipe tensorwise --accumulate hopper | 1 | 3 | scales
long: weights | tiny joined      | --recipe tensorwise | 3 | 3 --no-fp8-all-gather | scales
long: current   | tiny joined      | --recipe current | 1 | 3 | scales
gathered        | tiny joined      | --recipe delayed --master bf16 | 3 | 3 --no-fp8-all-gather | bits
gathered-rows   | tiny joined      | --recipe rowwise --lr 1e-2 --grad-accumulation 2 --recompute full STATISTICS | 3 --no-fp8-all-gather | 3 | bits
gathered-rows-gw | tiny joined     | --recipe rowwise_with_gw_hp --paranoid 1 | 4 --tp 2 --no-fp8-all-gather | 4 --tp 2 | bits
gathered-rows-tp | uneven packed   | --recipe rowwise EVALUATED | 4 --tp 2 --zero 1 --no-fp8-all-gather | 4 --tp 2 --zero 1 | bits
gathered-rows-ep | full joined     | --recipe rowwise --expert-rows 1 --recompute selective | 4 --ep 2 --no-fp8-all-gather | 4 --ep 2 | bits
gathered-rows-experts | mixture joined | --recipe rowwise --grad-accumulation 2 --recompute full STATISTICS | 3 --no-fp8-all-gather | 3 | bits
gathered-rows-ep-gw | mixture joined | --recipe rowwise_with_gw_hp --zero 2 --paranoid 1 | 4 --ep 2 --no-fp8-all-gather | 4 --ep 2 | bits
gathered-rows-ep-lora | mixture joined | --recipe rowwise --lora-rank 4 | 4 --ep 2 --no-fp8-all-gather | 4 --ep 2 | bits
gathered-rows-lora | tiny joined   | --recipe rowwise --lora-rank 4 --filter *.layers.0.* | 2 --no-fp8-all-gather | 2 | bits
gathered-blocks | squares joined   | --recipe blockwise --grad-accumulation 2 STATISTICS | 2 --no-fp8-all-gather | 2 | bits
gathered-blocks-ep | square-experts joined | --recipe blockwise STATISTICS | 4 --ep 2 --no-fp8-all-gather | 4 --ep 2 | bits
gathered-single | tiny joined      | --recipe rowwise --rowwise-single-copy --master bf16 | 3 | 3 --no-fp8-all-gather | bits
long: gathered-2 | tiny joined     | --recipe tensorwise --master bf16 | 3 | 3 --no-fp8-all-gather | bits
long: gathered-3 | tiny joined     | --recipe current --master bf16 | 3 | 3 --no-fp8-all-gather | bits
zero-1          | tiny joined      | --recipe tensorwise | 3 | 3 --zero 1 | bits
zero-1-delayed  | tiny joined      | --recipe delayed | 3 | 3 --zero 1 | bits
long: zero-1-2  | tiny joined      | --recipe rowwise | 3 | 3 --zero 1 | bits
long: zero-1-3  | tiny joined      | --recipe rowwise_with_gw_hp | 3 | 3 --zero 1 | bits
long: zero-1-4  | tiny joined      | --recipe current | 3 | 3 --zero 1 | bits
long: zero-1-5  | tiny joined      | --recipe tensorwise --accumulate hopper | 3 | 3 --zero 1 | bits

copies-scales   | tiny joined      | --recipe tensorwise | 4 | 4 --dp-replicate 2 --save-every 1 --async-save | codes
copies-delayed  | tiny joined      | --recipe delayed --amax-history 3 --grad-accumulation 2 | 4 | 4 --dp-replicate 2 --paranoid 1 | codes
copies-current  | tiny joined      | --recipe current --lora-rank 4 | 4 | 4 --dp-replicate 2 --zero 2 --paranoid 2 | codes
long: copies-bf16 | qwen3 joined     | --precision bf16 | 2 | 4 --dp-replicate 2 | codes
copies-nvfp4    | tiny joined      | --recipe nvfp4 --steps 1 | 1 --grad-accumulation 4 | 2 --grad-accumulation 2 --dp-replicate 2 --paranoid 1 | f32
copies-blocks   | tiny joined      | --recipe blockwise | 1 | 2 --dp-replicate 2 | codes
long: copies-rows | tiny joined    | --recipe rowwise --grad-accumulation 2 | 4 | 4 --dp-replicate 2 --zero 1 | codes
long: copies-rows-gw | tiny joined | --recipe rowwise_with_gw_hp | 4 | 4 --dp-replicate 2 | codes
long: copies-weights | tiny joined | --recipe tensorwise --no-fp8-all-gather | 4 | 4 --dp-replicate 2 --recompute full | codes

ep-bf16         | mixture joined   | --precision bf16 | 1 | 2 --ep 2 | codes
ep-rows-gw      | mixture joined   | --recipe rowwise_with_gw_hp --steps 1 | 1 | 4 --ep 4 | codes
ep-blocks       | mixture joined   | --recipe blockwise --steps 1 | 1 | 2 --ep 2 | codes
ep-delayed      | mixture joined   | --recipe delayed --amax-history 3 --steps 1 | 1 | 2 --ep 2 | scales
long: ep-scales | mixture joined   | --recipe tensorwise --steps 1 | 1 | 4 --ep 4 | scales
long: ep-current | mixture joined  | --recipe current --steps 1 | 1 | 2 --ep 2 | scales
ep-nvfp4        | mixture joined   | EXPERTS --recipe nvfp4 | 1 | 4 --ep 4 --tp 2 --expert-rows 1 | codes
long: ep-mxfp8  | mixture joined   | --recipe mxfp8 --steps 1 | 1 | 2 --ep 2 | codes

tp-bf16         | wide joined      | --precision bf16 --steps 1 | 1 | 2 --tp 2 | scales
long: tp-scales-bf16 | wide joined      | --recipe tensorwise --steps 1 | 1 | 4 --tp 4 | scales
tp-tensorwise   | wide packed      | --recipe tensorwise --activations f32 --steps 1 | 1 | 2 --tp 2 | codes
tp-current      | wide packed      | --recipe current --activations f32 --steps 1 | 1 | 4 --tp 4 | codes
tp-delayed      | wide packed      | --recipe delayed --activations f32 --steps 1 | 1 | 2 --tp 2 | codes
tp-rowwise      | uneven packed    | --recipe rowwise --activations f32 --steps 1 | 1 | 2 --tp 2 | codes
tp-rowwise-gw   | wide packed      | --recipe rowwise_with_gw_hp --activations f32 --steps 1 | 1 | 4 --tp 4 | codes
tp-blockwise    | qwen3 packed     | --recipe blockwise --activations f32 --steps 1 | 1 | 2 --tp 2 | codes
long: tp-blockwise-4 | wide packed      | --recipe blockwise --activations f32 --steps 1 | 1 | 4 --tp 4 | codes
tp-mxfp8        | wide packed      | --recipe mxfp8 --activations f32 --steps 1 | 1 | 2 --tp 2 | codes
tp-nvfp4        | wide packed      | --recipe nvfp4 --activations f32 --steps 1 | 1 | 2 --tp 2 | codes
tp-chosen       | wide packed      | CHOSEN --activations f32 --steps 1 | 1 | 4 --tp 4 | codes
tp-hopper       | wide packed      | --recipe rowwise --accumulate hopper --activations f32 --steps 1 | 1 | 2 --tp 2 | scales
long: tp-hopper-4 | wide packed    | --recipe tensorwise --accumulate hopper --activations f32 --steps 1 | 1 | 4 --tp 4 | scales
tp-tensor-codes | tensor:heads joined | --recipe tensorwise --activations f32 --lora-rank 4 | 1 | 2 --tp 2 | codes
tp-row-codes    | row:heads joined | --recipe rowwise --activations f32 --lora-rank 4 | 1 | 4 --tp 4 | codes
tp-block-codes  | block:heads joined | --recipe blockwise --activations f32 --lora-rank 4 | 2 | 4 --tp 2 --zero 2 | codes
long: tp-tensor-codes-4 | tensor:heads joined | --recipe tensorwise --activations f32 --lora-rank 4 | 1 | 4 --tp 4 | codes
long: tp-row-codes-2 | row:heads joined | --recipe rowwise --activations f32 --lora-rank 4 | 2 | 4 --tp 2 --zero 2 | codes
long: tp-block-codes-4 | block:heads joined | --recipe blockwise --activations f32 --lora-rank 4 | 1 | 4 --tp 4 | codes

pp-bf16         | deep joined      | --precision bf16 SAMPLED EVALUATED | 1 | 2 --pp 2 --recompute selective | bits
pp-tensorwise   | deep joined      | --recipe tensorwise --grad-accumulation 4 --fuse-projections SAMPLED | 1 | 3 --pp 3 --recompute full | bits
pp-current      | deep joined      | --recipe current --grad-accumulation 3 --fp8-lm-head STATISTICS SAMPLED | 1 | 4 --pp 4 | bits
pp-delayed      | deep joined      | --recipe delayed --grad-accumulation 4 --amax-history 2 --steps 3 STATISTICS EVALUATED | 1 | 2 --pp 2 | bits
pp-rowwise      | deep joined      | --recipe rowwise --grad-accumulation 2 STATISTICS SAMPLED | 1 | 4 --pp 4 --recompute full | bits
pp-rowwise-gw   | deep joined      | --recipe rowwise_with_gw_hp --grad-accumulation 4 STATISTICS | 1 | 2 --pp 2 --recompute selective | bits
pp-blockwise    | deep joined      | --recipe blockwise --grad-accumulation 4 STATISTICS SAMPLED | 1 | 3 --pp 3 | bits
pp-mxfp8        | deep joined      | --recipe mxfp8 --grad-accumulation 6 STATISTICS | 1 | 4 --pp 4 | bits
pp-nvfp4        | deep joined      | --recipe nvfp4 --grad-accumulation 4 STATISTICS SAMPLED | 1 | 3 --pp 3 | bits
pp-hopper       | deep joined      | --recipe rowwise --accumulate hopper --grad-accumulation 4 | 1 | 2 --pp 2 | bits
pp-chosen       | deep joined      | CHOSEN --grad-accumulation 4 STATISTICS | 1 | 3 --pp 3 | bits
pp-fp8-lora     | deep joined      | --recipe tensorwise DROPOUT --grad-accumulation 4 STATISTICS | 1 | 2 --pp 2 --paranoid 2 | bits
pp-fp8-tp       | deep joined      | --recipe rowwise --grad-accumulation 2 STATISTICS SAMPLED | 2 --tp 2 | 4 --tp 2 --pp 2 | bits
pp-fp8-ep       | mixture joined   | --recipe rowwise --grad-accumulation 2 STATISTICS SAMPLED | 2 --ep 2 | 4 --ep 2 --pp 2 | bits
long: pp-fp8-shards | deep joined  | --recipe rowwise --grad-accumulation 2 STATISTICS SAMPLED | 2 --zero 2 | 4 --pp 2 --zero 2 | bits
long: pp-bf16-4 | deep joined      | --precision bf16 --grad-accumulation 4 | 1 | 4 --pp 4 --recompute selective | bits
long: pp-tensorwise-2 | deep joined | --recipe tensorwise --grad-accumulation 4 STATISTICS | 1 | 2 --pp 2 | bits
long: pp-current-2 | deep joined   | --recipe current --grad-accumulation 4 STATISTICS | 1 | 2 --pp 2 | bits
long: pp-delayed-4 | deep joined   | --recipe delayed --grad-accumulation 4 --amax-history 3 --steps 5 STATISTICS | 1 | 4 --pp 4 | bits
long: pp-blockwise-4 | deep joined | --recipe blockwise --grad-accumulation 4 STATISTICS | 1 | 4 --pp 4 | bits
long: pp-fp8-lora-4 | deep joined  | --recipe tensorwise DROPOUT --grad-accumulation 4 STATISTICS | 1 | 4 --pp 4 | bits
END

# words FLAGS: the flags, with those that the words in capitals stand for
words() {
  echo "$*" | sed "/--recipe\|CHOSEN/s/^/--precision fp8 /
    s|EVALUATED|--eval-data $made/joined.tokens --eval-every 1 --eval-batches 2|
    s/SAMPLED/--sample-every 2 --sample-prompt To --sample-tokens 6/
    s/STATISTICS/--tensor-stats-every 2/
    s/MUON/--optimizer muon --steps 5/
    s/BALANCED/--aux-loss 0.5 --z-loss 0.1/
    s/EXPERTS/--filter *.self_attn.* --filter *.layers.1.* --activations f32 --steps 1/
    s/DROPOUT/--lora-rank 4 --lora-dropout 0.25/
    s/CHOSEN/--recipe rowwise --recipe *.self_attn.*=tensorwise --recipe *.down_proj=delayed --fp8-gemms *.o_proj=forward,wgrad --fp8-lm-head/"
}
# bound NAME: the largest relative differences of losses, of norms and of gradients of the first step; a fourth number is a
# difference that some gradient exceeds. Samples and loads of experts are equal where losses are within 1e-6.
#   bits     all that the reference records is equal: also statistics of tensors, and the last checkpoint
#   f32      only orders of sums differ
#   codes    FP8 codes and bf16 values are those of the reference but for some that a last bit of a sum changes
#   flips    FP4 codes are those of the reference but for some
#   scales   scales depend on the micro-batch, or sums are rounded to bf16 in another order
#   rounded  gradients travel in bf16
bound() {
  case $1 in
    bits) echo 0 0 ;;
    f32) echo 1e-6 1e-6 1e-5 ;;
    codes) echo 1e-4 1e-2 0.02 ;;
    flips) echo 5e-4 2e-2 0.25 ;;
    scales) echo 1e-3 1e-2 0.5 ;;
    rounded) echo 1e-4 1e-2 1e-2 1e-4 ;;
  esac
}

# models: lines of a name, a preset, and what differs from it
models() {
  cat <<'END'
tiny tiny
deep tiny num_hidden_layers=4
tied tiny num_hidden_layers=5 tie_word_embeddings=true attention_bias=true mlp_bias=true vocab_size=259
qwen2 tiny model_type=qwen2 num_key_value_heads=1
qwen3 tiny model_type=qwen3 num_key_value_heads=1 vocab_size=259
few tiny model_type=qwen3 num_key_value_heads=1 head_dim=2
wide tiny model_type=qwen3 head_dim=48 intermediate_size=560
squares tiny hidden_size=256 intermediate_size=512 num_attention_heads=4 num_key_value_heads=4 head_dim=64
heads tiny head_dim=128 intermediate_size=576
mixtral mixtral-tiny
mixture qwen3-moe-tiny num_experts=7 num_hidden_layers=4 norm_topk_prob=false mlp_only_layers=[1]
sparse qwen3-moe-tiny num_experts=41 num_experts_per_tok=2 moe_intermediate_size=16 num_hidden_layers=2
full qwen3-moe-tiny num_experts=16 num_experts_per_tok=6 num_hidden_layers=2
square-experts qwen3-moe-tiny hidden_size=256 moe_intermediate_size=256 num_experts=5 num_hidden_layers=2
END
}
# uneven: makes uneven.h5 from tied.h5: a scale of whole rows loses half of the inputs of o_proj, which that of a rank does not
uneven() {
  fp8-export "$made/tied.h5" -o "$made/uneven.hf" -q && "$SRC/tests/defects/uneven.py" "$made/uneven.hf/model.safetensors" "$made/moved" &&
    mv "$made/moved" "$made/uneven.hf/model.safetensors" && fp8-convert "$made/uneven.hf" --dtype f32 -o "$made/uneven.h5" -q
}
# model NAME: makes NAME.h5; row:NAME has the weights of NAME as FP8 codes with a scale for each row
model() {
  [ ! -e "$made/$1.h5" ] || return 0
  case $1 in
    uneven) model tied && uneven ;;
    *:*) model "${1#*:}" && fp8-quantize "$made/${1#*:}.h5" -o "$made/$1.h5" --scaling "${1%%:*}" -q ;;
    *) fp8-init $(models | sed -n "s/^$1 //p" | sed 's/ / --set /g') -o "$made/$1.h5" -q ;;
  esac >out 2>err
}
# conversations: makes packed.tokens, sequences of several conversations, of which the answers are targets; tokens are bytes
conversations() {
  grep '^[A-Z]' text.txt |
    sed 's/^\(.\)\([a-z]*\).*/{"messages":[{"role":"user","content":"\1"},{"role":"assistant","content":"\2"}]}/' >chat.jsonl
  echo '{"eos": "E", "begin": [""], "prompt": ["{user}:"], "answer": ["{answer}E"]}' >template.json
  python3 -S -c '
import json, sys
tokenizer = json.load(sys.stdin)
tokenizer["added_tokens"] = []
tokenizer["model"].update(merges=[], vocab={text: token for text, token in tokenizer["model"]["vocab"].items() if token < 256})
json.dump(tokenizer, sys.stdout)' <"$FP8_SHARE/tokenizers/shakespeare/tokenizer.json" >tokenizer.json
  fp8-tokenize chat.jsonl --template template.json --tokenizer tokenizer.json --pack 16 -o "$made/packed.tokens" -q
}
# tokens NAME: makes NAME.tokens: joined is a text, separate are its lines, packed are conversations, flat are equal tokens
tokens() {
  [ ! -e "$made/$1.tokens" ] || return 0
  case $1 in
    joined) cp d.h5 "$made/joined.tokens" ;;
    separate)
      grep . text.txt | head -n 120 | sed 's/["\\]//g; s/.*/{"text":"&"}/' >lines.jsonl
      fp8-tokenize lines.jsonl -o "$made/separate.tokens" -q
      ;;
    packed) conversations ;;
    flat) head -c 600 /dev/zero | tr '\0' a >a.txt && fp8-tokenize a.txt -o "$made/flat.tokens" -q ;;
  esac >out 2>err
}

# steps PROGRAM RUN MODEL DATA FLAGS: trains in the folder RUN on as many ranks as the first of the flags says
steps() {
  program=$1 run=$2 inputs="$made/$3.h5 --data $made/$4.tokens"
  [ "$4" != separate ] || inputs="$inputs --documents separate"
  set -f
  set -- $5
  ranks=$1 parts=$1 accumulation=1 launch=
  shift
  options=$(words "--lr 1e-3 $*") || return
  while [ $# -gt 1 ]; do
    case $1 in
      --tp | --pp) parts=$((parts / $2)) ;;
      --grad-accumulation) accumulation=$2 ;;
    esac
    shift
  done
  [ "$ranks" = 1 ] || launch="mpirun -n $ranks"
  $launch $program $inputs --seq-length 16 --batch-size $((24 / parts / accumulation)) --precision fp32 --steps 2 $options \
    --out "$run" --gradients "$run/gradients.safetensors" -q >out 2>err </dev/null
  ended=$?
  set +f
  [ $ended = 0 ] && return
  sed -i '/^fp8-step/!d; s/^/the run failed: /' err
  [ -s err ] || echo "the run failed with status $ended" >err
  return $ended
}
# differs RUN OTHER LOSS NORM SPARE: prints the first number or text in the log of RUN that OTHER has not, within bounds of which 0
# compares digits; or the memory of OTHER, if it is not what OTHER planned, or, where SPARE is 1, more; or fails if there is neither
differs() {
  awk -v loss="$3" -v norm="$4" -v spare="$5" '
    function value(text, key) {
      if (!match(text, "\"" key "\":(\"([^\"\\\\]|\\\\.)*\"|{[^}]*}|[^,}]*)")) return ""
      return substr(text, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
    }
    function near(a, b, bound) { return (a - b) * (a - b) <= bound * bound * b * b }
    { kind = value($0, "type"); step = value($0, "step"); keys = "" }
    kind == "\"step\"" { keys = "loss grad_norm aux_loss z_loss expert_load_max expert_idle" }
    kind == "\"eval\"" { keys = "tokens loss" }
    kind == "\"sample\"" { keys = "text" }
    NR != FNR && kind == "\"run\"" { plan = value($0, "memory_plan") }
    NR != FNR && kind == "\"end\"" { memory = value($0, "memory_used") }
    {
      n = split(keys, key, " ")
      for (i = 1; i <= n; i++) {
        found = value($0, key[i])
        if (NR != FNR) other[kind, step, key[i]] = found
        else if (found != "") one[order[++compared] = kind SUBSEP step SUBSEP key[i]] = found
      }
    }
    END {
      for (i = 1; i <= compared; i++) {
        split(at = order[i], part, SUBSEP)
        bound = part[3] == "grad_norm" ? norm : part[3] ~ /loss$/ ? loss : 0
        if (other[at] == one[at] || other[at] != "" && (bound ? near(other[at], one[at], bound) : loss > 1e-6)) continue
        print part[3] " of step " part[2] " is " other[at] ", not " one[at]
        exit 0
      }
      spared = value(plan, "total") - value(plan, "program") - value(plan, "matmul scratch") \
        - value(memory, "total") + value(memory, "matmul scratch")
      if (compared == 0) print "the reference has no losses"
      else if (memory == "" || spared < 0 || spared > 0 && !spare) print "the memory is " memory ", and planned is " plan
      else exit 1
    }' "$1/log.jsonl" "$2/log.jsonl"
}
# equal RUN OTHER SPARE LOSS NORM GRADIENTS ROUNDED: whether OTHER is equal to RUN; writes to err why it is not
equal() {
  ! differs "$1" "$2" "$4" "$5" "$3" >err || return
  if ! fp8-info "$1/gradients.safetensors" --diff "$2/gradients.safetensors" ${6:+--bound $6} >out 2>err; then
    echo "gradients: $(sed -n '/ not within /{s/.*: //;p;q}' out), the worst $(sed -n 2p out | tr -s ' ')" >err
    return 1
  fi
  if [ $# = 5 ]; then
    [ ! -e "$1/tensors.jsonl" ] || cmp "$1/tensors.jsonl" "$2/tensors.jsonl" 2>err || return
    fp8-info "$1" --diff "$2" >out 2>err
  elif [ $# = 7 ] && fp8-info "$1/gradients.safetensors" --diff "$2/gradients.safetensors" --bound $7 >out 2>err; then
    echo "no gradient is rounded" >err
    return 1
  fi
}

while IFS='|' read -r name files flags one mesh bounds; do
  if [ -z "${ROW:-}" ]; then
    chosen "$name" || continue
  elif [ "${name#long: }" != "$ROW" ]; then
    continue
  fi
  model=${files% *} data=${files#* } reference=$made/$(echo "$files $flags $one" | tr -cs 'A-Za-z0-9.\n' _)
  case $mesh in *--ep*) spare=1 ;; *) spare=0 ;; esac
  rm -rf mesh && mkdir mesh && model "$model" && tokens "$data" && tokens joined &&
    { [ -e "$reference" ] || { mkdir "$reference" && steps fp8-step "$reference" "$model" "$data" "$one $flags"; }; } &&
    steps "${PROGRAM:-fp8-step}" mesh "$model" "$data" "$mesh $flags" && equal "$reference" mesh $spare $(bound "$bounds") &&
    fp8-info --verify mesh >out 2>err
  result $? "$name: $files, $mesh, ${flags:+$flags, }$bounds: equal to $one"
done <table

# lacking: prints each pair of a dimension and a setting that no row of the table has
lacking() {
  awk -F '|' '
    function of(flag, otherwise) {
      return match($0, "--" flag " [^ |]*") ? substr($0, RSTART + length(flag) + 3, RLENGTH - length(flag) - 3) : otherwise
    }
    {
      split($2, files, " "); split($5, ranks, " "); split("", dimensions)
      if (of("tp", 1) > 1) dimensions["tp"]
      if (of("pp", 1) > 1) dimensions["pp"]
      if (of("ep", 1) > 1) dimensions["ep"]
      if (of("dp-replicate", 1) > 1) dimensions["copies"]
      if (ranks[1] / of("tp", 1) / of("pp", 1) / of("dp-replicate", 1) > 1) dimensions["shards"]
      settings = files[1] " " files[2] " zero-" of("zero", 3) " recompute-" of("recompute", "none") " " \
        of("recipe", of("precision", "fp32")) (/--lora|DROPOUT/ ? " adapters" : " weights") (/--grad-accumulation/ ? " micro-batches" : " one-batch")
      n = split(settings, setting, " ")
      for (d in dimensions) for (i = 1; i <= n; i++) seen[d, setting[i]]
    }
    END {
      same = "joined separate packed zero-1 zero-2 zero-3 recompute-none recompute-selective recompute-full weights adapters" \
        " one-batch micro-batches bf16 tensorwise current delayed rowwise_with_gw_hp blockwise mxfp8 nvfp4 mixture"
      n = split("shards copies tp pp ep", all, " ")
      for (d = 1; d <= n; d++) {
        m = split(same (all[d] == "ep" ? " mixtral" : " rowwise tied qwen2 qwen3"), setting, " ")
        for (i = 1; i <= m; i++) if (!((all[d], setting[i]) in seen)) print all[d] " with " setting[i]
      }
    }' table
}
[ -n "${ROW:-}" ] || is "each dimension is with each stage, recompute, kind of data, precision, recipe and family of models" "$(lacking)" ""
done_testing
