"""fp8-log on a long log: bytes per second relative to `wc -l` on the same file in the same round, and peak memory. The log has records as fp8-step
writes them, with evaluations, saves and a resumption. The records of a second, shorter log have a nested member, so that each is parsed by nlohmann's parser
instead of json::Shape: the difference is what json::Shape gains."""

import os
import random
import subprocess
import time
from pathlib import Path

from machine import summary

START = '{"type":"run","steps":100000000,"precision":"fp8","recipe":"tensorwise","emulated":true}\n'


def tails(count: int) -> list[str]:
    """The members of step records after `tokens`, with distinct values."""
    rng = random.Random(1)
    found = []
    for _ in range(count):
        seconds, noise = 0.2 + 0.02 * rng.random(), rng.random()
        rate = 4096 / seconds
        found.append(f',"loss":{2 + 0.1 * noise!r},"grad_norm":{0.5 + noise!r},"lr":{3e-4 * noise!r},"step_s":{seconds!r},"data_wait_s":{noise * 1e-3!r},'
                     f'"tokens_per_s":{rate!r},"model_tflops":{rate * 7.4e-4!r},"memory_peak_bytes":1288490188,"precision":"fp8",'
                     '"recipe":"tensorwise","emulated":true,"fp8_flop_share":0.8712893,"fp8_gemms":672,"bf16_gemms":3,"f32_gemms":0,'
                     f'"saturated_share":{noise * 1e-6!r},"underflow_share":{noise * 1e-4!r},"skipped":{"true" if noise < 1e-3 else "false"}}}\n')
    return found


def write_log(path: Path, size: int, nested: bool = False) -> int:
    """Writes a log of at least `size` bytes, whose step records have a nested member if `nested`; returns its size."""
    ends, step, resumed = tails(10007), 0, False
    if nested:
        ends = [end.replace("}", ',"nested":{}}') for end in ends]
    with path.open("w") as f:
        written = f.write(START)
        while written < size:
            if not resumed and written > size // 2:
                resumed, step = True, step - 500
                written += f.write(START)
            lines = [f'{{"type":"step","step":{n},"tokens":{n * 4096}{ends[n % len(ends)]}' for n in range(step + 1, step + 1001)]
            step += 1000
            lines.append(f'{{"type":"eval","step":{step},"tokens":16384,"loss":2.25,"perplexity":9.48,"precision":"fp8"}}\n')
            lines.append(f'{{"type":"checkpoint","step":{step},"path":"run/step-{step:08d}","seconds":0.5}}\n')
            written += f.write("".join(lines))
    return path.stat().st_size


def run(command: list[str], piped: Path | None = None) -> tuple[float, float, int]:
    """Wall-clock seconds, CPU seconds and peak resident memory in bytes of one process."""
    started = time.perf_counter()
    source = subprocess.Popen(["cat", str(piped)], stdout=subprocess.PIPE) if piped else None
    child = subprocess.Popen(command, stdin=source.stdout if source else subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if source:
        source.stdout.close()
        source.wait()
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {child.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def measure(folder: Path, programs: Path, quick: bool, rounds: int) -> list[dict]:
    """Measures each use of fp8-log in every round; a comparison reads the log twice."""
    path, tool = folder / "long.jsonl", str(programs / "fp8-log")
    size, other = (8 if quick else 1000) * 1_000_000, folder / "nested.jsonl"
    sizes = {str(path): write_log(path, size), str(other): write_log(other, size // 10, nested=True)}
    name = str(path)
    jobs = {"wc -l": (["wc", "-l", name], None, 1), "summary": ([tool, "--json", name], None, 1), "summary, nlohmann": ([tool, "--json", str(other)], None, 1),
            "summary, pipe": ([tool, "--json", "-"], path, 1),
            "plot loss": ([tool, name, "--plot", "loss"], None, 1), "compare": ([tool, "--compare", name, name], None, 2)}
    runs: dict[str, list] = {job: [] for job in jobs}
    for _ in range(rounds):
        for job, (command, piped, reads) in jobs.items():
            seconds, processor, memory = run(command, piped)
            size = sizes[str(other) if str(other) in command else name]
            runs[job].append((reads * size / seconds, processor / reads / size * 1e9, memory))
    path.unlink()
    other.unlink()
    return [{"name": job, "bytes": sizes[name], "bytes_per_s": summary(r[0] for r in found), "processor_s_per_gb": summary(r[1] for r in found),
             "of_wc": summary(r[0] / w[0] for r, w in zip(found, runs["wc -l"])), "memory_peak_bytes": max(r[2] for r in found)}
            for job, found in runs.items()]
