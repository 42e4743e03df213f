#!/usr/bin/env python3
"""Runs all benchmarks in rounds, so that compared programs run under the same conditions; writes JSON and prints tables. Called by tests/bench/run,
which documents the environment variables."""

import datetime
import json
import os
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import experts
import export
import generate
import kernels
import logs
import machine
import report
import saves
import token_rates
import tensor_core
import tensor_parallel
from machine import summary
from steps import BATCH, Case, Workspace, cases

# Numerator, denominator, sequence length, lower bound (for PyTorch only if the CPU has bf16 instructions). 'RxT' and PyTorch's type are inserted.
RATIOS = [
    ("bf16 {all}", "torch {native} compiled {all}", 512, 1.35),
    ("bf16 {all}", "torch {native} compiled {all}", 64, 1.05),
    ("bf16 stored bf16 {all}", "torch {native} compiled {all}", 512, None),
    ("bf16 stored bf16 {all}", "torch {native} compiled {all}", 64, 1.2),
    ("bf16 {all}", "torch {native} eager {all}", 512, None),
    ("bf16 {all}", "torch {native} eager {all}", 64, None),
    ("fp32 {all}", "torch f32 compiled {all}", 512, None),
    ("fp32 {all}", "torch f32 compiled {all}", 64, None),
    ("fp8 {all}", "torch fp8 compiled {all}", 512, 1.7),
    ("fp8 {all}", "torch fp8 compiled {all}", 64, 1.7),
    ("fp8 {all}", "bf16 {all}", 512, 0.8),
    ("fp8 {all}", "bf16 {all}", 64, 0.8),
    ("fp8 rowwise {all}", "bf16 {all}", 512, None),
    ("fp8 delayed {all}", "bf16 {all}", 512, 0.7),
    ("fp8 current {all}", "bf16 {all}", 512, 0.7),
    ("fp8 blockwise {all}", "bf16 {all}", 512, 0.7),
    ("fp8 mxfp8 {all}", "bf16 {all}", 512, 0.7),
    ("fp8 nvfp4 {all}", "bf16 {all}", 512, 0.75),
    ("fp8 hopper {all}", "bf16 {all}", 512, 0.1),
    ("bf16 2x1", "bf16 1x2", 512, 0.9),
    ("bf16 2x1", "bf16 1x2", 64, None),
    ("fp8 2x1", "fp8 1x2", 512, 0.9),
    ("bf16 packed separate {all}", "bf16 packed joined {all}", 512, 0.95),
    ("bf16 packed separate {all}", "bf16 packed joined {all}", 64, 0.95),
]


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def selected(name: str) -> bool:
    """Whether a word of `name` begins with T: pp selects stages of layers, but not the step whose name has hopper."""
    return re.search(r"(^|[ _])" + re.escape(os.environ.get("T", "")), name) is not None


def measured(name: str, measure: Callable[[], list[dict]]) -> list[dict]:
    """What `measure` returns; nothing unless the benchmark is selected."""
    if not selected(name):
        return []
    say(name)
    return measure()


def steps_of(length: int, quick: bool) -> tuple[int, int]:
    """Timed and warm-up steps of a run."""
    timed, warm_up = (3, 1) if quick else (12, 3) if length < 256 else (5, 2)
    return int(os.environ.get("BENCH_STEPS", timed)), warm_up


def run_rounds(space: Workspace, chosen: list[Case], rounds: int, quick: bool) -> tuple[dict[str, list[dict]], list[dict[str, float]]]:
    """Runs of each case by name, one per round, and the seconds of the GEMMs, one dictionary per round."""
    runs: dict[str, list[dict]] = {case.name: [] for case in chosen}
    matmuls = []
    for i in range(rounds):
        say(f"round {i + 1} of {rounds}: matmul")
        matmuls.append(kernels.matmul(space.programs.parent / "test" / "gemm_bench", machine.threads(), quick))
        for case in chosen:
            if any("failed" in r for r in runs[case.name]):
                continue
            r = space.run(case, *steps_of(case.length, quick))
            runs[case.name].append(r)
            outcome = r["failed"] if "failed" in r else f"{statistics.median(r['tokens_per_s']):.1f} tokens/s"
            say(f"round {i + 1} of {rounds}: {case.name}: {outcome}")
    return runs, matmuls


def step_entry(case: Case, runs: list[dict], peak: float | None, config: dict) -> dict:
    entry = {"name": case.name, "ranks": case.ranks, "threads": case.threads, "batch": [BATCH, case.length]}
    if "failed" in runs[-1]:
        return entry | {"failed": runs[-1]["failed"]}
    by_round = [statistics.median(r["tokens_per_s"]) for r in runs]
    every = [x for r in runs for x in r["tokens_per_s"]]
    flops = 6 * kernels.matmul_parameters(config)
    share = summary(flops * t / peak for t in by_round) if peak is not None else None
    entry |= {"tokens_per_s": summary(every), "tokens_per_s_by_round": by_round, "share_of_peak": share,
              "memory_peak_bytes": max(r["memory_peak_bytes"] for r in runs), "command": runs[-1]["command"]}
    for key in ("memory_plan_bytes", "fp8_flop_share", "parameters", "loss"):
        if key in runs[-1]:
            entry[key] = runs[-1][key]
    if "model_tflops" in runs[-1]:
        entry["model_tflops"] = statistics.median(r["model_tflops"] for r in runs)
    return entry


def ratios(steps: list[dict], threads: int, native: str) -> list[dict]:
    by_name = {s["name"]: s for s in steps if "failed" not in s}
    found = []
    for above, below, length, wanted in RATIOS:
        def full(name: str) -> str:
            what, layout = name.rsplit(" ", 1)
            return f"{what} {BATCH}x{length} {layout.format(all=f'1x{threads}')}".format(native=native)

        a, b = by_name.get(full(above)), by_name.get(full(below))
        if a and b:
            each = [x / y for x, y in zip(a["tokens_per_s_by_round"], b["tokens_per_s_by_round"])]
            goal = wanted if native == "bf16" or "torch" not in below else None
            found.append({"name": f"{full(above)} / {full(below)}", "ratio": summary(each), "by_round": each, "wanted": goal})
    return found


def parts(programs: Path, threads: int, quick: bool) -> dict:
    """Benchmarks of casts, optimizer, ops and checkpoint files."""
    jobs = {"casts": ("quant_bench", "/256/1024" if quick else "cast_|decode_|quantize_all", ("of_memcpy", "GB/s")),
            "optimizer": ("optim_bench", "f32_and_bf16_copy|muon_matrix/768/768" if quick else ".",
                          ("of_triad", "GB/s", "triad_GB/s", "of_adamw", "of_gemm")),
            "ops": ("ops_bench", "attention" if quick else ".", ("FLOP/s", "bytes/s", "logits/s")),
            "disk": ("h5_bench", ".", ("of_plain", "least", "most", "GB/s", "plain_GB/s", "processor_s_per_GB", "plain_processor_s_per_GB"))}
    scratch = programs.parent / "bench"  # on the disk of the build; /tmp may be in memory
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ |= {"TMPDIR": str(scratch), "FP8_BENCH_MB": "64" if quick else "1536"}
    found: dict = {}
    for name, (program, pattern, counters) in jobs.items():
        found[name] = []
        if selected(name):
            say(name)
            repetitions = 1 if quick or name == "disk" else 3
            entries = kernels.benchmark(programs.parent / "test" / program, threads, pattern, 0.02 if quick else 0.5, repetitions)
            found[name] = kernels.counters(entries, counters)
    for entry in found["disk"]:  # its spread is that of the pairs
        entry["of_plain"] |= {"min": entry.pop("least")["min"], "max": entry.pop("most")["max"]}
    return found


def result_path(quick: bool, folder: Path, date: str) -> Path:
    if quick:
        return folder / "quick.json"
    results = Path(__file__).with_name("results")
    results.mkdir(exist_ok=True)
    stem, n = f"{date}-{os.environ.get('BENCH_NAME', 'cpu')}", 1
    while (path := results / f"{stem}{f'-{n}' if n > 1 else ''}.json").exists():
        n += 1
    return path


def main() -> None:
    quick, peer_python = os.environ.get("BENCH_QUICK") == "1", os.environ.get("PEER_PYTHON", "")
    rounds = int(os.environ.get("BENCH_ROUNDS", 1 if quick else 3))
    folder, programs = Path(os.environ["O"]) / "bench", Path(os.environ["O"]) / "bin"
    threads, facts = machine.threads(), machine.facts()
    if facts["load_at_start"] > 0.3:
        say(f"load {facts['load_at_start']:.1f}: other programs are running, do not keep these figures")
    date = datetime.date.today().isoformat()
    lengths = (64, 128) if quick else (64, 512)
    result: dict = {"date": date, "command": "make bench", "quick": quick, "rounds": rounds, "machine": facts,
                    "versions": machine.versions(programs, peer_python), "steps": [], "ratios": [], "peak": []}
    native = "bf16" if "avx512_bf16" in facts["isa"] else "f32"
    chosen = [c for c in cases(lengths, threads, bool(peer_python), quick, native) if selected(c.name)]
    if chosen:
        space = Workspace(folder, programs, peer_python, quick)
        result["model"] = space.config
        for t in sorted({c.length for c in chosen if "packed" in c.what}):
            space.pack(t)
        runs, matmuls = run_rounds(space, chosen, rounds, quick)
        fastest = {key: min(m[key] for m in matmuls) for key in matmuls[0]}
        peaks = {t: kernels.peak(fastest, space.config, BATCH * t) for t in lengths}
        result["steps"] = [step_entry(c, runs[c.name], peaks[c.length], space.config) for c in chosen]
        result["ratios"] = ratios(result["steps"], threads, native)
        result["matmul_seconds"] = {key: summary(m[key] for m in matmuls) for key in matmuls[0]}
        for t, best in peaks.items():
            if best is not None:
                rounds_of_it = [kernels.peak(m, space.config, BATCH * t) for m in matmuls]
                result["peak"].append({"rows": BATCH * t, "flop_per_s": best, "by_round": rounds_of_it,
                                       "tokens_per_s": best / (6 * kernels.matmul_parameters(space.config))})
    result |= parts(programs, threads, quick)
    folder.mkdir(parents=True, exist_ok=True)
    tests = programs.parent / "test"
    result["tensor_core"] = measured("tensor_core", lambda: tensor_core.measure(tests / "gemm_bench", peer_python, quick, rounds))
    result["generate"] = measured("generate", lambda: generate.measure(folder, programs, threads, quick, rounds))
    result["experts"] = measured("experts", lambda: experts.measure(folder, programs, peer_python, threads, native, quick, rounds))
    result["tensor_parallel"] = measured("tp", lambda: tensor_parallel.measure(folder, programs, quick, rounds))
    result["pipeline"] = measured("pp", lambda: tensor_parallel.measure(folder, programs, quick, rounds, "pp"))
    result["exports"] = measured("export", lambda: export.measure(folder, programs, quick, rounds))
    result["saves"] = measured("saves", lambda: saves.measure(folder, programs, threads, quick, rounds))
    result["tokens"] = measured("tokens", lambda: token_rates.measure(folder, programs, os.environ.get("TOKENS_PYTHON", ""), quick, rounds))
    result["logs"] = measured("log", lambda: logs.measure(folder, programs, quick, rounds))
    path = result_path(quick, folder, date)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(report.text(result))
    print(f"\n{path}")


if __name__ == "__main__":
    main()
