#!/usr/bin/env python3
"""What fp8-export writes, loaded by transformers, compressed-tensors and PEFT on the CPU, and compared with fp8-eval and fp8-generate. Folders in bf16, of
each family with each kind of rope too, are also loaded by transformers 4.57, which reads older spellings of keys in config.json.

Losses of tokens in float32 on both sides differ by the order of sums: 2e-5 nats is the bound of tests/golden/models/README.md, whose models these
are. It holds for every format, because both sides compute with the same values: those of bf16, of the dequantized codes, of the merged adapters.
Not proven: GEMMs of codes. transformers has kernels of 128 x 128 blocks for GPUs only and dequantizes on a CPU; compressed-tensors computes on
values, and its activations, quantized per token with scales that are no powers of two, have no equal in fp8-eval: FP8_LOSS bounds the
difference of the mean losses, 0.034 nats at most in these models.
transformers 5.23 dequantizes a weight with partial blocks wrongly (it divides the weight into as many equal blocks as there are scales), which
fp8-export notes: such weights are dequantized here, and the model 'blocks' has whole ones. It dequantizes FP4 experts without the scale of the
tensor; compressed-tensors decodes them here."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from compressed_tensors.compressors.nvfp4 import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme, preset_name_to_scheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, CompressedTensorsConfig, FineGrainedFP8Config
from transformers.utils import logging

sys.dont_write_bytecode = True
SRC = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SRC / "tests/man"), str(SRC / "tests/hf")]
import losses as theirs  # noqa: E402
from losses import LENGTH, SEQUENCES  # noqa: E402
from mdoc import Tap  # noqa: E402

MODELS = ("llama3", "llama-tied", "qwen2", "qwen3", "wide", "blocks", "mixtral", "experts")
FAMILIES = {"llama": {}, "mistral": {"sliding_window": 64}, "qwen3": {}, "mixtral": {"num_local_experts": 4}, "qwen3_moe": {"num_experts": 4},
            "qwen2": {"use_sliding_window": True, "sliding_window": 64, "layer_types": ["full_attention", "sliding_attention"]}}
ROPES = {"default": {}, "linear": {"factor": 8.0},
         "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}
LOSS = 2e-5
FP8_LOSS = 0.05
BIN = os.environ.get("BIN") or str(SRC / "build/bin")
ENVIRONMENT = os.environ | {"PATH": BIN + ":" + os.environ["PATH"], "FP8_SHARE": str(SRC / "share"), "OMP_NUM_THREADS": "1"}
tap = Tap()
plain: dict[str, torch.Tensor] = {}  # folders in bf16, and the losses of fp8-eval


def run(*command: str) -> str:
    """Standard output of one of the programs; ends the test if it fails."""
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def records(text: str, kind: str) -> list[dict]:
    return [r for r in map(json.loads, text.splitlines()) if r["type"] == kind]


def ours(checkpoint: str, *flags: str) -> torch.Tensor:
    """Losses of fp8-eval, [sequences, length]."""
    printed = run("fp8-eval", checkpoint, "--data", "data.h5", "--seq-length", str(LENGTH), "--per-token", "-q", *(flags or ("--precision", "fp32")))
    return torch.tensor([r["losses"] for r in records(printed, "sequence")], dtype=torch.float64)


def losses(model: torch.nn.Module) -> torch.Tensor:
    """The same losses by transformers."""
    return theirs.losses(model, tokens)


def load(folder: str, **settings) -> torch.nn.Module:
    """A model of which every tensor was found in the folder, and every tensor of the folder used."""
    model, amiss = theirs.load(folder, **settings)
    tap.result(not amiss, f"{folder}: every tensor is loaded, and no other", str(amiss))
    return model


def compare(name: str, got: torch.Tensor, own: torch.Tensor) -> None:
    worst = float((got - own).abs().max()) if got.shape == own.shape else float("nan")
    tap.result(worst <= LOSS, f"{name}: losses agree", f"largest difference {worst}, at most {LOSS}; shapes {got.shape}, {own.shape}")
    print(f"# {name}: largest difference {worst:.2g}")


def same_weights(name: str, got: dict[str, torch.Tensor], folder: str) -> None:
    """Dequantized weights are those of fp8-convert --dequantize, bit for bit; `folder` has these in bf16."""
    wanted = load_file(Path(folder) / "model.safetensors")
    other = [key for key, value in wanted.items() if key not in got or not torch.equal(got[key].bfloat16(), value)]
    tap.result(not other, f"{name}: dequantized weights have the same bits", str(other[:3]))


def dequantized(folder: str) -> dict[str, torch.Tensor]:
    """Weights of a folder of blocks; those at the right and at the lower edge may be smaller than 128 x 128."""
    tensors = load_file(Path(folder) / "model.safetensors")
    for name, scales in [(n, t) for n, t in tensors.items() if n.endswith("_scale_inv")]:
        codes = tensors[name.removesuffix("_scale_inv")].float()
        grid = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
        tensors[name.removesuffix("_scale_inv")] = codes * grid[:codes.shape[0], :codes.shape[1]]
    return tensors


def dequantized_fp4(folder: str, scheme: QuantizationScheme) -> dict[str, torch.Tensor]:
    """Weights of a folder of FP4 codes, decoded by compressed-tensors in float32."""
    tensors = load_file(Path(folder) / "model.safetensors")
    values = {name: value for name, value in tensors.items() if "_packed" not in name and "_scale" not in name}
    for name in [name for name in tensors if name.endswith("_packed")]:
        weight, packed = name.removesuffix("_packed"), tensors[name]
        codes = unpack_fp4_from_uint8(packed, packed.shape[0], 2 * packed.shape[1], dtype=torch.float32)
        values[weight] = dequantize(codes, tensors[weight + "_scale"].float(), global_scale=tensors[weight + "_global_scale"],
                                    args=scheme.weights, dtype=torch.float32)
    return values


def check_fp4(folder: str) -> None:
    """A folder of FP4 codes: a configuration that means what the preset of weights alone does, and the weights."""
    config = QuantizationConfig.model_validate(json.loads((Path(folder) / "config.json").read_text())["quantization_config"])
    group, preset = config.config_groups["group_0"], preset_name_to_scheme("NVFP4A16", ["Linear"])
    own, wanted = group.model_dump(), preset.model_dump()
    for scheme in (own, wanted):
        for key in ("zp_dtype", "observer"):  # there are no zero points, and nothing is observed
            scheme["weights"].pop(key, None)
    tap.result(own == wanted and config.format == "nvfp4-pack-quantized", f"{folder}: the configuration is that of NVFP4A16", f"{own} {wanted}")
    same_weights(f"{folder}, compressed-tensors", dequantized_fp4(folder, group), f"{folder}-values")


def unfused(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a model; experts, of which transformers has the gates and ups of a layer in one tensor, under their names in a folder."""
    mixtral = model.config.model_type == "mixtral"
    gate_up, down = (("w1", "w3"), ("w2",)) if mixtral else (("gate_proj", "up_proj"), ("down_proj",))
    state = {}
    for key, value in model.state_dict().items():
        name = key.replace(".mlp.", ".block_sparse_moe.") if mixtral else key
        experts, _, part = name.partition(".experts.")
        if not part:
            state[name] = value
            continue
        parts = gate_up if part == "gate_up_proj" else down
        for number, expert in enumerate(value):
            for linear, weight in zip(parts, expert.chunk(len(parts))):
                state[f"{experts}.experts.{number}.{linear}.weight"] = weight
    return state


def check_bf16(name: str, source: str) -> None:
    folder = f"{name}-bf16"
    run("fp8-export", source, "-q", "-o", folder)
    run("fp8-convert", folder, "-q", "-o", f"{folder}.h5")
    model = load(folder)
    plain[folder] = ours(f"{folder}.h5")
    compare(folder, losses(model), plain[folder])
    prompt = [5, 6, 7, 8]
    with torch.no_grad():
        new = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0)
    text = run("fp8-generate", f"{folder}.h5", "--ids", ",".join(map(str, prompt)), "--greedy", "--ignore-end", "--max-tokens", "12",
               "--precision", "fp32", "--json")
    own = records(text, "generation")[0]["ids"]
    tap.result(new[0, len(prompt):].tolist() == own, f"{folder}: greedy tokens agree", f"{new.tolist()} {own}")


def check_ropes() -> None:
    """A new model of each family with each kind of rope."""
    for family, own in FAMILIES.items():
        for kind, keys in ROPES.items():
            config = {"model_type": family, "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 32, "num_experts_per_tok": 2,
                      "initializer_range": 0.2, "rope_parameters": {"rope_type": kind, "rope_theta": 500000.0, **keys}}
            Path("config.json").write_text(json.dumps(config | own))
            run("fp8-init", "config.json", "-q", "-o", f"{family}-{kind}.h5")
            check_bf16(f"{family}-{kind}", f"{family}-{kind}.h5")


def check_version_4() -> None:
    """The folders in bf16 once more, by transformers 4.57."""
    done = subprocess.run([sys.executable, str(SRC / "tests/hf/losses.py"), "data.u16", *plain], env=os.environ | {"PYTHONPATH": os.environ["HF_VERSION_4"]},
                          capture_output=True, text=True, check=False)
    read = [json.loads(line) for line in done.stdout.splitlines()]
    tap.result(len(read) == len(plain), "transformers 4.57 loads every folder in bf16", done.stderr.strip()[-2000:])
    for folder in read:
        name = f"transformers {folder['version']}, {folder['folder']}"
        tap.result(not folder["amiss"] and folder["version"].startswith("4.57."), f"{name}: every tensor is loaded, and no other", str(folder["amiss"]))
        compare(name, torch.tensor(folder["losses"], dtype=torch.float64), plain[folder["folder"]])


def check_quantized(name: str, source: str, form: str) -> None:
    """An export of codes, with the same weights dequantized by transformers and by fp8-convert."""
    folder = f"{name}-{form}"
    run("fp8-export", source, "-q", "--any-server", "-o", folder, "--format", form)
    run("fp8-convert", folder, "--dequantize", "--dtype", "bf16", "-q", "-o", f"{folder}.h5")
    run("fp8-export", f"{folder}.h5", "-q", "-o", f"{folder}-values")
    if form == "fp8":
        same_weights(folder, dequantized(folder), f"{folder}-values")
        if not name.startswith("blocks"):
            return
    if form == "nvfp4":
        check_fp4(folder)
        if any("experts" in key for key in load_file(Path(folder) / "model.safetensors")):
            return
    setting = FineGrainedFP8Config(dequantize=True) if form == "fp8" else CompressedTensorsConfig(dequantize=True)
    model = load(folder, quantization_config=setting)
    for parameter in model.parameters():  # not the buffers, of which one holds the frequencies of rope
        parameter.data = parameter.data.bfloat16().float()
    same_weights(f"{folder}, transformers", unfused(model), f"{folder}-values")
    compare(folder, losses(model), ours(f"{folder}.h5"))
    if form == "compressed-tensors" and not hasattr(model.config, "num_experts_per_tok"):
        check_activations(folder)


def check_activations(folder: str) -> None:
    """The default way to load a folder of compressed-tensors: codes, and activations that are quantized per token."""
    model = load(folder)
    codes = model.model.layers[1].mlp.up_proj.weight.dtype
    got = losses(model).mean()
    own = ours(f"{folder}.h5", "--precision", "fp8", "--recipe", "rowwise").mean()
    values = ours(f"{folder}.h5").mean()
    tap.result(codes == torch.float8_e4m3fn, f"{folder}: weights are loaded as codes", str(codes))
    print(f"# {folder}: mean loss {got:.5f}, of fp8-eval --precision fp8 {own:.5f}, of fp32 {values:.5f}")
    tap.result(abs(float(got - own)) <= FP8_LOSS, f"{folder}: mean losses with quantized activations agree", f"{got} {own}")


def check_adapters(name: str, base: Path) -> None:
    """Adapters beside the base in PEFT, and merged into it."""
    train(f"{name}.h5", f"{name}-run", "--precision", "fp32")
    run("fp8-export", f"{name}-run", "-q", "-o", f"{name}-peft", "--format", "peft")
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), f"{name}-peft").eval()
    own = ours(f"{name}-run/step-00000004")
    moved = float((own - ours(f"{name}.h5")).abs().mean())
    tap.result(moved > 0.01, f"{name}-peft: the adapters change the losses", f"by {moved}")
    compare(f"{name}-peft", losses(model), own)
    run("fp8-convert", f"{name}-run/step-00000004", "--merge-lora", "-q", "-o", f"{name}-merged.h5")
    check_bf16(f"{name}-merged", f"{name}-merged.h5")


def check_adapters_on_codes() -> None:
    """The whole way on FP8 codes: a folder of blocks, adapters beside its codes, merged, exported in the same format."""
    for form in ("fp8", "compressed-tensors", "nvfp4"):
        run("fp8-convert", f"blocks-{form}", "-q", "-o", f"codes-{form}.h5")
        train(f"codes-{form}.h5", f"codes-{form}-run", "--precision", "fp8")
        run("fp8-convert", f"codes-{form}-run/step-00000004", "--merge-lora", "-q", "-o", f"merged-codes-{form}.h5")
        check_quantized("blocks-merged", f"merged-codes-{form}.h5", form)


def train(model: str, out: str, *flags: str) -> None:
    run("fp8-step", model, "--data", "data.h5", "--out", out, "--steps", "4", "--batch-size", "2", "--seq-length", str(LENGTH), "--lora-rank", "4",
        "--lr", "2e-2", "-q", *flags)


def check_kept_linears() -> None:
    """Linears that stay in bf16 are named in the configuration as the loaders look for them."""
    golden = SRC / "tests/golden/models/llama3/hf"
    run("fp8-convert", str(golden), "-q", "-o", "kept.h5", "--filter", "*.0.self_attn.?_proj", "--filter", "*.1.mlp.down_proj")
    for form in ("fp8", "compressed-tensors", "nvfp4"):
        check_quantized("kept", "kept.h5", form)
    check_keys()
    golden = SRC / "tests/golden/models/mixtral/hf"
    run("fp8-convert", str(golden), "-q", "-o", "kept-experts.h5", "--filter", "*.0.*.experts.*")
    for form in ("fp8", "compressed-tensors"):
        check_quantized("kept-experts", "kept-experts.h5", form)


def check_keys() -> None:
    """The keys and types of quantization_config that vLLM and SGLang read, see fp8-export(1)."""
    def settings(folder: str) -> dict:
        return json.loads((Path(folder) / "config.json").read_text())["quantization_config"]

    def texts(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)

    blocks, rows = settings("kept-fp8"), settings("kept-compressed-tensors")
    good = (blocks["quant_method"] == "fp8" and blocks["activation_scheme"] == "dynamic" and blocks["weight_block_size"] == [128, 128]
            and texts(blocks["ignored_layers"]) and blocks["ignored_layers"] == blocks["modules_to_not_convert"]
            and "kv_cache_quant_algo" not in blocks and blocks.get("scale_fmt", "float") == "float")
    tap.result(good, "fp8: the keys of vLLM and SGLang", json.dumps(blocks))
    group = rows["config_groups"]["group_0"]
    good = (rows["quant_method"] == "compressed-tensors" and rows["format"] == "float-quantized" and texts(rows["ignore"])
            and group["targets"] == ["Linear"] and group["weights"]["strategy"] == "channel" and group["weights"]["dynamic"] is False
            and group["input_activations"]["strategy"] == "token" and group["input_activations"]["dynamic"] is True)
    tap.result(good, "compressed-tensors: the keys of vLLM and SGLang", json.dumps(rows))
    for named in (blocks["ignored_layers"], rows["ignore"]):
        tap.result({"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.qkv_proj", "model.layers.1.mlp.down_proj", "lm_head"} <= set(named),
                   "the linears in bf16 are excluded, merged ones under both names", str(named))


def main() -> None:
    run("fp8-init", "tiny", "--set", "vocab_size=256", "--set", "hidden_size=256", "--set", "intermediate_size=384", "--set", "head_dim=64", "-q",
        "-o", "fresh.h5")
    run("fp8-export", "fresh.h5", "-q", "-o", "blocks")
    run("fp8-init", "qwen3-moe-tiny", "--set", "mlp_only_layers=[]", "--set", "initializer_range=0.1", "-q", "-o", "fresh-experts.h5")
    run("fp8-export", "fresh-experts.h5", "-q", "-o", "experts")
    for name in MODELS:
        golden = Path(name) if name in ("blocks", "experts") else SRC / "tests/golden/models" / name / "hf"
        run("fp8-convert", str(golden), "-q", "-o", f"{name}.h5")
        check_bf16(name, f"{name}.h5")
        for form in ("fp8", "compressed-tensors", "nvfp4"):
            check_quantized(name, f"{name}.h5", form)
        check_adapters(name, golden)
    check_adapters_on_codes()
    check_kept_linears()
    check_ropes()
    check_version_4()
    tap.done()


logging.set_verbosity_error()
logging.disable_progress_bar()
torch.manual_seed(1)
tokens = torch.randint(0, 256, (SEQUENCES * LENGTH + 1,))
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    Path("data.u16").write_bytes(b"".join(int(i).to_bytes(2, "little") for i in tokens))
    run("fp8-tokenize", "data.u16", "--vocab-size", "256", "-q", "-o", "data.h5")
    main()
    os.chdir("/")
