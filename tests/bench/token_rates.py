"""Encoding with tokenizer.json: token_bench relative to Hugging Face tokenizers (token_peer.py) on one core, alternating; and fp8-tokenize on all cores
relative to one. Ratios are computed within a round."""

import json
import os
import subprocess
import time
from pathlib import Path

import kernels
from machine import summary, threads

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "share/text/tinyshakespeare.txt"
FOLDERS = sorted(p.parent for p in (ROOT / "tests/golden/tokenizers").glob("*/tokenizer.json"))
COPIES = 60  # copies of the text for fp8-tokenize on all cores


def on_one_core(command: list[str]) -> list[str]:
    return ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]


def ours(programs: Path, quick: bool) -> dict[str, float]:
    """Bytes per second by 'kind/job'."""
    script = programs.parent / "bench" / "token_bench"
    script.write_text("#!/bin/sh\nexec " + " ".join(on_one_core([str(programs.parent / "test" / "token_bench")])) + ' "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return {e["run_name"]: e["bytes/s"] for e in kernels.benchmark(script, 1, "gpt2" if quick else ".", 0.02 if quick else 0.5, 1)}


def theirs(python: str, quick: bool) -> dict[str, float]:
    folders = [str(f) for f in FOLDERS if not quick or f.name == "gpt2"]
    command = on_one_core([python, str(Path(__file__).with_name("token_peer.py")), str(TEXT), "1" if quick else "5", *folders])
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {f"{kind}/{job}": rate for kind, jobs in found.items() for job, rate in jobs.items()}


def cores(folder: Path, programs: Path, quick: bool) -> float:
    """Speed of fp8-tokenize on all cores relative to one core."""
    path = folder / "long.txt"
    path.write_bytes(TEXT.read_bytes() * (2 if quick else COPIES))
    command = [str(programs / "fp8-tokenize"), str(path), "--tokenizer", str(FOLDERS[-2]), "-n", "-o", str(folder / "long.h5")]
    took = []
    for words in (on_one_core(command), command):
        begun = time.perf_counter()
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        took.append(time.perf_counter() - begun)
    path.unlink()
    return took[0] / took[1]


def measure(folder: Path, programs: Path, python: str, quick: bool, rounds: int) -> list[dict]:
    """A row per tokenizer and job, and one for all cores."""
    runs = [(ours(programs, quick), theirs(python, quick) if python else {}) for _ in range(rounds)]
    rows = [{"name": name, "bytes_per_s": summary(r[0][name] for r in runs),
             "peer_bytes_per_s": summary(r[1][name] for r in runs) if python else None,
             "of_peer": summary(r[0][name] / r[1][name] for r in runs) if python else None} for name in runs[0][0]]
    scale = summary(cores(folder, programs, quick) for _ in range(rounds))
    return [*rows, {"name": f"fp8-tokenize, {threads()} cores relative to one", "of_one_core": scale}]
