#!/usr/bin/env python3
"""The peer: training steps of the same model in PyTorch. A plain implementation of Llama with parameters and AdamW state in bf16, gradient clipping and
the fused optimizer; eager or compiled, optionally with torchao's emulated Float8Linear. With --transformers it is the model of transformers instead,
whose experts are computed by torch's grouped_mm. Reads the same configuration and raw u16 tokens as fp8-step and prints one JSON line: tokens/s of each
step, peak memory, loss of the last step.

Options of PyTorch are chosen for speed; none is tuned for one machine."""

import argparse
import dataclasses
import json
import resource
import time
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rope_tables(length: int, dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, dim], halves repeated, bf16."""
    frequencies = theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies).repeat(1, 2)
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim = config["head_dim"]
        hidden = config["hidden_size"]
        self.q_proj = nn.Linear(hidden, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.groups * self.dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.groups * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.groups, self.dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.groups, self.dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups != self.heads)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, self.heads * self.dim))


class Layer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        hidden, wide, eps = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
        self.input_norm, self.post_norm = nn.RMSNorm(hidden, eps), nn.RMSNorm(hidden, eps)
        self.attention = Attention(config)
        self.gate_proj = nn.Linear(hidden, wide, bias=False)
        self.up_proj = nn.Linear(hidden, wide, bias=False)
        self.down_proj = nn.Linear(wide, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.input_norm(x), cos, sin)
        n = self.post_norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(n)) * self.up_proj(n))


class Llama(nn.Module):
    """A Llama with tied embeddings; forward() returns the mean loss over all targets."""

    def __init__(self, config: dict, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        cos, sin = rope_tables(length, config["head_dim"], config["rope_parameters"]["rope_theta"])
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=config["initializer_range"])

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)  # tied
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class OfTransformers(nn.Module):
    """The model of transformers for a configuration; forward() returns the mean loss over all targets."""

    def __init__(self, config: dict) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        super().__init__()
        options = {"experts_implementation": "grouped_mm"} if "num_experts_per_tok" in config else {}
        self.model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), attn_implementation="sdpa", **options)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def with_float8(model: nn.Module) -> nn.Module:
    """Replaces every linear layer by torchao's, with FP8 GEMMs emulated in bf16; the tied head is not a linear layer and is unchanged."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = dataclasses.replace(Float8LinearConfig.from_recipe_name("tensorwise"), emulate=True)
    return convert_to_float8_training(model, config=config)


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, help="config.json of the model")
    parser.add_argument("tokens", type=Path, help="raw u16 token ids")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seq-length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=6, help="number of timed steps (default: 6)")
    parser.add_argument("--warm-up", type=int, default=2, help="number of untimed steps before the timed steps (default: 2)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16", help="type of parameters, optimizer state and activations (default: bf16)")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--transformers", action="store_true", help="the model of transformers, a dense one or a mixture of experts")
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    config = json.loads(args.config.read_text())
    ids = torch.from_numpy(numpy.fromfile(args.tokens, dtype=numpy.uint16).astype(numpy.int64))
    model = OfTransformers(config) if args.transformers else Llama(config, args.seq_length)
    model = model.to({"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype]).train()
    model = with_float8(model) if args.fp8 else model
    optimizer = make_optimizer(model)
    run = torch.compile(model) if args.compile else model
    count = args.batch_size * args.seq_length
    seconds, loss = [], torch.zeros(())
    for step in range(args.warm_up + args.steps):
        begin = time.perf_counter()
        first = step * count % (len(ids) - count - 1)
        tokens = ids[first : first + count].view(args.batch_size, args.seq_length)
        targets = ids[first + 1 : first + 1 + count].view(args.batch_size, args.seq_length)
        loss = run(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.detach()
        seconds.append(time.perf_counter() - begin)
    timed = seconds[args.warm_up :]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"tokens_per_s": [count / s for s in timed], "memory_peak_bytes": peak, "loss": loss.item(),
                      "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
