"""Whole steps of two ranks that divide every linear (--tp 2), or the layers (--pp 2), with a thread each, relative to one rank with two threads: the same
samples and the same GEMMs, but rows and sums, or activations, travel between the ranks, and stages wait for each other."""

import os
import shutil
import statistics
from pathlib import Path

from machine import summary
from steps import BATCH, Case, Workspace

LENGTH, QUICK_LENGTH = 512, 64
GOAL = 0.85  # of the tokens/s of one rank; with stages of what the bubble leaves of them


def cases(length: int, dimension: str) -> dict[str, tuple[Case, Case]]:
    """By precision: one rank, and two that divide `dimension`, tp or pp."""
    more = ("--grad-accumulation", "8") if dimension == "pp" else ()
    flags = {"bf16": ("--precision", "bf16", *more), "fp8": ("--precision", "fp8", *more)}
    return {what: (Case(what, length, of, 1, 2), Case(f"{what} {dimension}", length, of, 2, 1, **{dimension: 2})) for what, of in flags.items()}


def measure(folder: Path, programs: Path, quick: bool, rounds: int, dimension: str = "tp") -> list[dict]:
    """Runs both cases of each precision in each round; one entry a precision."""
    length, timed, warm_up = (QUICK_LENGTH, 3, 1) if quick else (LENGTH, int(os.environ.get("BENCH_STEPS", 5)), 2)
    place = folder / dimension
    space = Workspace(place, programs, "", quick)
    chosen = cases(length, dimension)
    runs: dict[str, list[dict]] = {case.name: [] for pair in chosen.values() for case in pair}
    for _ in range(rounds):
        for pair in chosen.values():
            for case in pair:
                runs[case.name].append(space.run(case, timed, warm_up))
    shutil.rmtree(place)
    found = []
    for what, pair in chosen.items():
        one, two = ([statistics.median(r["tokens_per_s"]) for r in runs[case.name]] for case in pair)
        by_round = [x / y for x, y in zip(two, one)]
        last = runs[pair[1].name][-1]
        found.append({"name": f"{what} {BATCH}x{length}", "of_one_rank": summary(by_round), "by_round": by_round,
                      "wanted": GOAL * (1 - last.get("bubble_expected", 0)), **{key: last[key] for key in ("bubble", "bubble_expected") if key in last},
                      "tokens_per_s": summary(two), "one_rank_tokens_per_s": summary(one),
                      "memory_peak_bytes": max(r["memory_peak_bytes"] for r in runs[pair[1].name]),
                      "one_rank_memory_peak_bytes": max(r["memory_peak_bytes"] for r in runs[pair[0].name]),
                      "loss": last["loss"], "one_rank_loss": runs[pair[0].name][-1]["loss"], "command": last["command"]})
    return found
