#!/usr/bin/env python3
"""torch.optim.Muon itself beside fp8-step --optimizer muon: two updates of every linear of a layer from the gradients that fp8-step writes, with both
scales. The shapes are tall (gate), wide (k, v and down), square (q and o), and one row or one column, in a model whose intermediate size is 1.
The rate is 1, so that weights are their updates. For fp32 torch.bfloat16 is float32, since torch.optim.Muon always rounds to it. In bf16 torch
rounds the norm too, which makes another matrix of small singular values: at most 0.12 of a weight."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

sys.dont_write_bytecode = True
SRC = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SRC / "tests/man"))
from mdoc import Tap  # noqa: E402

BIN = os.environ.get("BIN") or str(SRC / "build/bin")
ENVIRONMENT = os.environ | {"PATH": BIN + ":" + os.environ["PATH"], "FP8_SHARE": str(SRC / "share"), "OMP_NUM_THREADS": "1"}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False}
LR, BOUNDS = 1.0, {"fp32": 2e-5, "bf16": 0.25}  # relative L2 of each weight after two updates
tap = Tap()


def run(*command: str, status: int = 0) -> str:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, status):
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def shapes(inner: int) -> dict[str, tuple[int, ...]]:
    linears = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
               "mlp.gate_proj": (inner, 64), "mlp.up_proj": (inner, 64), "mlp.down_proj": (64, inner)}
    named = {f"model.layers.0.{name}.weight": shape for name, shape in linears.items()}
    return named | {"model.embed_tokens.weight": (256, 64), "lm_head.weight": (256, 64), "model.norm.weight": (64,),
                    "model.layers.0.input_layernorm.weight": (64,), "model.layers.0.post_attention_layernorm.weight": (64,)}


def make_model(inner: int) -> dict[str, torch.Tensor]:
    """A folder with random weights, converted to model.h5."""
    torch.manual_seed(inner)
    weights = {name: torch.randn(shape) * 0.05 if len(shape) > 1 else torch.ones(shape) for name, shape in shapes(inner).items()}
    Path("folder").mkdir(exist_ok=True)
    Path("folder/config.json").write_text(json.dumps(CONFIG | {"intermediate_size": inner}))
    save_file(weights, "folder/model.safetensors", metadata={"format": "pt"})
    run("fp8-convert", "folder", "-o", "model.h5", "-q", "-f", "--dtype", "f32")
    return weights


def train(precision: str, scale: str) -> list[dict[str, torch.Tensor]]:
    """Two steps in the folder run; their gradients."""
    flags = ["--data", "data.h5", "--sampler", "sequential", "--seq-length", "16", "--batch-size", "4", "--schedule", "constant", "--lr", str(LR),
             "--weight-decay", "0", "--clip", "1e9", "--optimizer", "muon", "--muon-scale", scale, "--precision", precision, "--steps", "2",
             "--out", "run", "-q"]
    subprocess.run(["rm", "-rf", "run"], check=True)
    for step in (1, 2):
        run("fp8-step", "model.h5", *flags, "--until-step", str(step), "--gradients", f"{step}.safetensors", "-f")
    return [load_file(f"{step}.safetensors") for step in (1, 2)]


def update(weights: dict[str, torch.Tensor], gradients: list[dict[str, torch.Tensor]], precision: str, scale: str) -> None:
    """Two updates of the linears by torch.optim.Muon, in place."""
    adjust = "match_rms_adamw" if scale == "rms" else "original"
    optimizer = torch.optim.Muon(list(weights.values()), lr=LR, weight_decay=0.0, momentum=0.95, nesterov=True, adjust_lr_fn=adjust)
    with mock.patch.object(torch, "bfloat16", torch.float32 if precision == "fp32" else torch.bfloat16):
        for gradient in gradients:
            for name, weight in weights.items():
                weight.grad = gradient[name].float()
            optimizer.step()


def main() -> None:
    text = (SRC / "share/text/tinyshakespeare.txt").read_bytes()[:20000]
    Path("text.txt").write_bytes(text)
    run("fp8-tokenize", "text.txt", "-o", "data.h5", "-q")
    for inner in (96, 1):
        first = make_model(inner)
        linears = [name for name in first if ".layers." in name and "norm" not in name]
        for precision, bound in BOUNDS.items():
            for scale in ("rms", "original"):
                wanted = {name: torch.nn.Parameter(first[name].clone()) for name in linears}
                update(wanted, train(precision, scale), precision, scale)
                save_file({name: weight.detach() for name, weight in wanted.items()}, "wanted.safetensors")
                records = map(json.loads, run("fp8-info", "run@last", "--diff", "wanted.safetensors", "--json", status=1).splitlines())
                found = {r["name"]: r["relative_l2"] for r in records if r["type"] == "tensor" and r["name"] in wanted}
                far = {name: value for name, value in found.items() if not value <= bound}
                what = f"{precision}, {scale}, intermediate size {inner}: weights are those of torch.optim.Muon"
                why = f"largest {max(found.values(), default=None)}, not within {bound}: {far}"
                tap.result(sorted(found) == sorted(linears) and not far, what, why)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    main()
    os.chdir("/")
tap.done()
