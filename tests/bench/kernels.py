"""Runs the Google Benchmark programs of the crates, and computes the peak rate of a step from the matmul times."""

import json
import os
import re
import subprocess
from pathlib import Path

from machine import summary

HEAD_ROWS = 256  # rows with which gemm_bench measures the head; times for other row counts are scaled
ROLES = ("forward", "dgrad", "wgrad")


def benchmark(program: Path, threads: int, pattern: str, min_time: float, repetitions: int, variables: dict[str, str] | None = None) -> list[dict]:
    """Runs the benchmarks of `program` whose names match `pattern`; returns an entry per repetition."""
    command = [str(program), f"--benchmark_filter={pattern}", "--benchmark_format=json", f"--benchmark_min_time={min_time}",
               f"--benchmark_repetitions={repetitions}"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)} | (variables or {}))
    if done.returncode != 0:
        raise SystemExit(f"bench: {program.name}: {done.stderr.strip()[-300:]}")
    return [b for b in json.loads(done.stdout)["benchmarks"] if b.get("run_type") != "aggregate"]


def counters(entries: list[dict], names: tuple[str, ...]) -> list[dict]:
    """The named counters of each benchmark, summarized over its repetitions."""
    grouped: dict[str, list[dict]] = {}
    for e in entries:
        grouped.setdefault(re.sub(r"/(iterations:\d+|manual_time|real_time)", "", e["run_name"]), []).append(e)
    return [{"name": name} | {c: summary(r[c] for r in rows) for c in names if c in rows[0]} for name, rows in grouped.items()]


def matmul(program: Path, threads: int, quick: bool) -> dict[str, float]:
    """Seconds of each bf16 GEMM, by 'role M N K' of the linear layer."""
    pattern = "bf16_.*/M:256/N:(768|2304)/" if quick else "bf16_"
    seconds = {}
    for e in benchmark(program, threads, pattern, 0.02 if quick else 0.25, 1):
        role, m, n, k = re.search(r"bf16_(\w+)/M:(\d+)/N:(\d+)/K:(\d+)", e["name"]).groups()
        seconds[f"{role} {m} {n} {k}"] = e["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[e["time_unit"]]
    return seconds


def layer_shapes(config: dict) -> list[tuple[int, int]]:
    """Output and input features of the GEMMs of a layer, with q, k, v fused and gate, up fused."""
    c, f, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    return [(q + 2 * kv, c), (c, q), (2 * f, c), (c, f)]


def matmul_parameters(config: dict) -> int:
    """N in 6 N tokens/s: the number of weights in GEMMs, including the head."""
    layer = sum(n * k for n, k in layer_shapes(config))
    return config["num_hidden_layers"] * layer + config["vocab_size"] * config["hidden_size"]


def peak(seconds: dict[str, float], config: dict, rows: int) -> float | None:
    """FLOP/s of a step that consists only of the GEMMs of its linear layers; None if a GEMM was not measured."""
    head = (config["vocab_size"], config["hidden_size"])
    total = 0.0
    for role in ROLES:
        wanted = [(f"{role} {rows} {n} {k}", config["num_hidden_layers"]) for n, k in layer_shapes(config)]
        wanted.append((f"{role} {HEAD_ROWS} {head[0]} {head[1]}", rows / HEAD_ROWS))
        if any(key not in seconds for key, _ in wanted):
            return None
        total += sum(times * seconds[key] for key, times in wanted)
    return 6.0 * matmul_parameters(config) * rows / total
