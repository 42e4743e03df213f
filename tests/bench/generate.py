"""fp8-generate: tokens per second of one text relative to the rate at which as many bytes as the weights have can be read again and again, which bounds
it, since each token needs every weight. The rate is that of the fastest of several loops that only read, in the best of all rounds, by all threads."""

import json
import os
import re
import subprocess
from pathlib import Path

import kernels
from machine import summary
from steps import QUICK

PRECISIONS = {"fp32": 4, "bf16": 2, "fp8": 2}  # bytes of a weight in memory; FP8 values are stored in bf16
PROMPT = "464,3290,318,257"


def tokens_per_s(command: list[str], folder: Path, threads: int) -> float:
    """The rate that fp8-generate -v prints: new tokens after the first."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
    found = re.search(r"([\d.e+]+) tokens/s", done.stderr)
    if done.returncode != 0 or not found:
        raise SystemExit(f"bench: fp8-generate: {done.stderr.strip()[-300:]}")
    return float(found.group(1))


def fastest_read(program: Path, threads: int, size: int, quick: bool) -> float:
    """Bytes per second of the fastest loop over `size` bytes."""
    read = kernels.benchmark(program, threads, "read_memory", 0.02 if quick else 0.25, 1, {"READ_BYTES": str(size)})
    return max(e["bytes/s"] for e in read)


def measure(folder: Path, programs: Path, threads: int, quick: bool, rounds: int) -> list[dict]:
    """Runs every precision in every round, after reading memory."""
    config = json.loads((Path(os.environ["FP8_SHARE"]) / "presets" / "llama-124m.json").read_text()) | (QUICK if quick else {})
    (folder / "generate.json").write_text(json.dumps(config))
    subprocess.run([programs / "fp8-init", "generate.json", "-o", "generate.h5", "-f", "-q"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    weights, tokens = kernels.matmul_parameters(config), 16 if quick else 128
    rates: dict[str, list[float]] = {p: [] for p in PRECISIONS}
    limits = dict.fromkeys(PRECISIONS.values(), 0.0)
    for _ in range(rounds):
        for size in limits:
            limits[size] = max(limits[size], fastest_read(programs.parent / "test" / "gemm_bench", threads, weights * size, quick))
        for precision, found in rates.items():
            command = [str(programs / "fp8-generate"), "generate.h5", "--ids", PROMPT, "--greedy", "--ignore-end", "--max-tokens", str(tokens),
                       "--precision", precision, "--json", "-v"]
            found.append(tokens_per_s(command, folder, threads))
    (folder / "generate.h5").unlink()
    return [{"name": f"generate {precision}", "tokens_per_s": summary(found), "memory_bytes_per_s": summary([limits[PRECISIONS[precision]]]),
             "of_memory": summary(rate * weights * PRECISIONS[precision] / limits[PRECISIONS[precision]] for rate in found)}
            for precision, found in rates.items()]
