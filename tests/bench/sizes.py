#!/usr/bin/env python3
"""Measures the step by size: models of 3M to 350M parameters, one and two threads, sequences of 64 to 2048 tokens, 2048 tokens per step. Prints
a Markdown table and writes JSON to tests/bench/results/. The profile of the last step also measures a GEMM of the model's width; the share of
peak is 6 N tokens/s divided by its FLOP/s. Needs the programs that `make bench` builds; then
    O=build python3 tests/bench/sizes.py        SIZES=3M,15M LENGTHS=64,2048 THREADS=1,2 select a part"""

import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import kernels
import machine
from steps import Workspace
from suite import result_path, say

TOKENS = 2048
# hidden, feed-forward, layers, vocabulary; heads of 64
SIZES = {"3M": (128, 384, 4, 16384), "15M": (256, 688, 8, 32768), "42M": (512, 1376, 8, 32768), "124M": (768, 2048, 12, 50304),
         "350M": (1024, 2816, 24, 50304)}


def config_of(size: str) -> dict:
    hidden, wide, layers, vocabulary = SIZES[size]
    return {"hidden_size": hidden, "intermediate_size": wide, "num_hidden_layers": layers, "num_attention_heads": hidden // 64,
            "num_key_value_heads": hidden // 64, "head_dim": 64, "vocab_size": vocabulary, "max_position_embeddings": 2048,
            "bos_token_id": 0, "eos_token_id": 0}


def measure(space: Workspace, length: int, threads: int, steps: int) -> dict:
    """Runs `steps` steps; returns the figures of the fastest step except the first."""
    out = space.folder / "run"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    command = ["fp8-step", "model.h5", "--data", "tokens.h5", "--out", "run", "--batch-size", str(TOKENS // length), "--seq-length", str(length),
               "--steps", str(steps), "--profile", str(steps)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PATH": f"{space.programs}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=space.folder, env=environment, capture_output=True, text=True)
    subprocess.run(["rm", "-rf", str(out)], check=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)}: {done.stderr.strip()[-300:]}")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    run = next(r for r in records if r["type"] == "run")
    timed = [r for r in records if r["type"] == "step"][1:]
    fastest = max(r["tokens_per_s"] for r in timed)
    flops = float(re.search(r"limits: .* matmul ([\d.]+) GFLOP/s", done.stderr).group(1)) * 1e9
    parts = {m.group(1): float(m.group(2)) for m in re.finditer(r"^fp8-step:   ([a-z][a-z -]*?) +[\d.]+ +([\d.]+) +\d+ ", done.stderr, re.MULTILINE)}
    return {"length": length, "threads": threads, "parameters": run["parameters"], "tokens_per_s": fastest,
            "share_of_peak": 6.0 * kernels.matmul_parameters(space.config) * fastest / flops, "matmul_flop_per_s": flops,
            "memory_peak_bytes": timed[0]["memory_peak_bytes"], "memory_plan_bytes": run["memory_plan"]["total"], "percent": parts,
            "command": f"OMP_NUM_THREADS={threads} {' '.join(command)}"}


def chosen(name: str, default: list[str]) -> list[str]:
    return os.environ[name].split(",") if name in os.environ else default


def main() -> None:
    programs = Path(os.environ["O"]).resolve() / "bin"
    os.environ.setdefault("FP8_SHARE", str(Path(__file__).resolve().parents[2] / "share"))
    os.environ.setdefault("BENCH_NAME", "sizes")
    rows = []
    for size in chosen("SIZES", list(SIZES)):
        space = Workspace(programs.parent / "bench" / f"size-{size}", programs, "", False, config_of(size))
        for threads in map(int, chosen("THREADS", sorted({"1", str(machine.threads())}))):
            for length in map(int, chosen("LENGTHS", ["64", "256", "512", "1024", "2048"])):
                r = {"size": size} | measure(space, length, threads, 3 if size in ("124M", "350M") else 5)
                rows.append(r)
                say(f"{size} T {length} {threads} threads: {r['tokens_per_s']:.0f} tokens/s, {100 * r['share_of_peak']:.0f} % of peak")
    date = datetime.date.today().isoformat()
    result = {"date": date, "command": "tests/bench/sizes.py", "tokens": TOKENS, "machine": machine.facts(), "versions": machine.versions(programs, ""),
              "rows": rows}
    path = result_path(False, programs.parent, date)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print("| model | threads | T | tokens/s | of peak | attention | optimizer | GiB | planned |\n|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        print(f"| {r['size']} | {r['threads']} | {r['length']} | {r['tokens_per_s']:.0f} | {100 * r['share_of_peak']:.0f} % | "
              f"{r['percent'].get('attention', 0):.0f} % | {r['percent'].get('optimizer', 0):.0f} % | {r['memory_peak_bytes'] / 2**30:.2f} | "
              f"{r['memory_plan_bytes'] / 2**30:.2f} |")
    print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
