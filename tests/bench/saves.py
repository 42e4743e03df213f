"""Steps during an asynchronous save: the ratio of the median step time between saves to that during a save, after the snapshot; and the time for which
an asynchronous and a synchronous save block the steps."""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from machine import summary
from steps import Workspace

# 250 MB to save, and steps short enough that several run during a save.
MODEL = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
         "head_dim": 64, "vocab_size": 8192, "bos_token_id": 0, "eos_token_id": 0}


def during_and_between(records: list[dict], warm_up: int) -> tuple[list[float], list[float]]:
    """Seconds of steps that ran completely during a save, and of steps without a save. The end of a save is detected at the end of a step, once for
    the files of the ranks and once for the commit, so the last two steps before its record count as neither."""
    during: list[float] = []
    between: list[float] = []
    since: list[float] = []
    saves = {r["step"] for r in records if r["type"] == "checkpoint"}
    saving, last = False, 0
    for r in records:
        if r["type"] == "checkpoint":
            during += since[:-2]
            since, saving = [], last in saves and last != r["step"]  # the next save waited for this one
        elif r["type"] == "step":
            last = r["step"]
            if last > warm_up:
                (since if saving else between).append(r["step_s"])
            saving = saving or last in saves
    return during, between


def one_run(space: Workspace, threads: int, steps: int, every: int, flags: list[str]) -> list[dict]:
    with tempfile.TemporaryDirectory(dir=space.folder) as out:
        command = [space.programs / "fp8-step", "model.h5", "--data", "tokens.h5", "--out", out + "/run", "--batch-size", "1", "--seq-length", "16",
                   "--steps", str(steps), "--save-every", str(every), "--keep", "1", "-q", *flags]
        done = subprocess.run(command, cwd=space.folder, env=os.environ | {"OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: fp8-step --save-every: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(folder: Path, programs: Path, threads: int, quick: bool, rounds: int) -> list[dict]:
    """Measures asynchronous and synchronous saves in every round."""
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
                during, between = during_and_between(records, warm_up)
                count = [count[0] + len(during), count[1] + len(between)]
                if during and between:
                    rate.append(statistics.median(between) / statistics.median(during))
    shutil.rmtree(space.folder)
    if not rate:
        raise SystemExit("bench: no step ran completely during a save")
    return [{"name": "steps during a save", "of_usual_rate": summary(rate), "steps_beside": count[0], "steps_between": count[1],
             "wait_s": summary(waits["async"]), "wait_s_sync": summary(waits["sync"]), "seconds": summary(seconds["async"]),
             "seconds_sync": summary(seconds["sync"])}]
