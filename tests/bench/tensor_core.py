"""FP8 GEMMs with the summation of an H100 (--accumulate hopper), relative to mmaemu, a PyTorch model with equal bits: one thread each, in CPU
time, in the same rounds."""

import os
import subprocess
from pathlib import Path

import kernels
from machine import summary

SHAPE = "M:256/N:768/K:768"

# A smaller GEMM, since mmaemu takes seconds for SHAPE; its speed hardly depends on the size. Prints FLOP/s.
PEER = """
import time, torch, mmaemu
torch.set_num_threads(1)
m, n, k = 64, 192, 768
x, w = (torch.randn(r, k).mul(40).clamp(-448, 448).to(torch.float8_e4m3fn) for r in (m, n))
begin = time.process_time()
mmaemu.accumulate(x, w, use_fast_accum={fast}, splitk=1)
print(2 * m * n * k / (time.process_time() - begin))
"""


def peer(python: str, fast: bool) -> float | None:
    """FLOP/s of mmaemu; None if it is not installed."""
    done = subprocess.run([python, "-W", "ignore", "-c", PEER.format(fast=fast)], capture_output=True, text=True,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    return float(done.stdout) if done.returncode == 0 else None


def measure(program: Path, peer_python: str, quick: bool, rounds: int) -> list[dict]:
    """An entry for each instruction set with fast and slow accumulation: FLOP/s per core and the ratio to mmaemu."""
    ours: dict[str, list[float]] = {}
    factors: dict[str, list[float]] = {}
    for _ in range(rounds):
        rival = {way: peer(peer_python, way == "fast") if peer_python else None for way in ("fast", "slow")}
        for e in kernels.benchmark(program, 1, f"hopper_.*{SHAPE}", 0.02 if quick else 0.5, 1):
            if e.get("error_occurred"):
                continue
            _, way, isa = e["name"].split("/")[1].split("_", 2)
            ours.setdefault(f"{isa} {way}", []).append(e["FLOP/s"])
            if rival[way] is not None:
                factors.setdefault(f"{isa} {way}", []).append(e["FLOP/s"] / rival[way])
    return [{"name": name, "flop_per_s": summary(each), "of_mmaemu": summary(factors[name]) if name in factors else None}
            for name, each in ours.items()]
