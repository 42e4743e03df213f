"""Steps beside a save: with --async-save, the median step while a save is written, after the copy was taken, over the median step of the same run
in between; and for how long a save holds the steps up, beside one before their eyes."""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from machine import summary
from steps import Workspace

# 250 MB to save, and steps so short that some lie beside it.
MODEL = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
         "head_dim": 64, "vocab_size": 8192, "bos_token_id": 0, "eos_token_id": 0}


def beside_and_between(records: list[dict], warm_up: int) -> tuple[list[float], list[float]]:
    """Seconds of steps that ran wholly beside a save, and of those with no save about. That a save has ended is seen at the end of a step, once for
    the ranks' files and once for the commit: the last two steps before its record belong to neither."""
    beside: list[float] = []
    between: list[float] = []
    since: list[float] = []
    saves = {r["step"] for r in records if r["type"] == "checkpoint"}
    saving, last = False, 0
    for r in records:
        if r["type"] == "checkpoint":
            beside += since[:-2]
            since, saving = [], last in saves and last != r["step"]  # one that waited for this one
        elif r["type"] == "step":
            last = r["step"]
            if last > warm_up:
                (since if saving else between).append(r["step_s"])
            saving = saving or last in saves
    return beside, between


def one_run(space: Workspace, threads: int, steps: int, every: int, flags: list[str]) -> list[dict]:
    with tempfile.TemporaryDirectory(dir=space.folder) as out:
        command = [space.programs / "fp8-step", "model.h5", "--data", "tokens.h5", "--out", out + "/run", "--batch-size", "1", "--seq-length", "16",
                   "--steps", str(steps), "--save-every", str(every), "--keep", "1", "-q", *flags]
        done = subprocess.run(command, cwd=space.folder, env=os.environ | {"OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: fp8-step --save-every: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(folder: Path, programs: Path, threads: int, quick: bool, rounds: int) -> list[dict]:
    """Both ways of saving, in every round."""
    space = Workspace(folder / "saves", programs, "", quick, None if quick else MODEL)
    steps, every, warm_up = (60, 20, 3) if quick else (320, 80, 5)
    rate, waits, seconds, count = [], {"async": [], "sync": []}, {"async": [], "sync": []}, [0, 0]
    for _ in range(rounds):
        for name, flags in ("async", ["--async-save"]), ("sync", []):
            records = one_run(space, threads, steps, every, flags)
            saves = [r for r in records if r["type"] == "checkpoint" and r["step"] < steps]
            waits[name] += [r["wait_s"] for r in saves]
            seconds[name] += [r["seconds"] for r in saves]
            if name == "async":
                beside, between = beside_and_between(records, warm_up)
                count = [count[0] + len(beside), count[1] + len(between)]
                if beside and between:
                    rate.append(statistics.median(between) / statistics.median(beside))
    shutil.rmtree(space.folder)
    if not rate:
        raise SystemExit("bench: no step ran wholly beside a save")
    return [{"name": "steps beside a save", "of_usual_rate": summary(rate), "steps_beside": count[0], "steps_between": count[1],
             "wait_s": summary(waits["async"]), "wait_s_sync": summary(waits["sync"]), "seconds": summary(seconds["async"]),
             "seconds_sync": summary(seconds["sync"])}]
