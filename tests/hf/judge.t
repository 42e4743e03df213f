#!/usr/bin/env python3
"""transformers in bf16 on a CPU as the server: fp8-judge says that bf16 made its log-probabilities, and at which temperature they are.

The model has two layers of width 256 and is trained for a few steps, so that its probabilities are not uniform. transformers rounds in other places than
fp8-eval (attention, rotary tables, the product of the gate), so that bf16 leaves a k3 that is not 0: 1.3e-5 was measured, and 1e-4 is the bound of
fp8-judge. fp8-judge(1) has the table of this test, which the lines '#' print."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

sys.dont_write_bytecode = True
SRC = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SRC / "tests/man")]
from mdoc import Tap  # noqa: E402

LENGTH, SEQUENCES = 96, 24
SHAPE = ("hidden_size=256", "intermediate_size=384", "num_attention_heads=4", "head_dim=64")
BIN = os.environ.get("BIN") or str(SRC / "build/bin")
ENVIRONMENT = os.environ | {"PATH": BIN + ":" + os.environ["PATH"], "FP8_SHARE": str(SRC / "share"), "OMP_NUM_THREADS": "1"}
tap = Tap()


def run(*command: str) -> str:
    """Standard output of one of the programs; ends the test if it fails."""
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def write_rollouts(path: str, logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> None:
    """The plain form of the log-probabilities of ids [SEQUENCES, LENGTH + 1]."""
    logprobs = torch.log_softmax(logits.float() / temperature, -1).gather(2, ids[:, 1:, None])[..., 0]
    with Path(path).open("w", encoding="utf-8") as out:
        for row, values in zip(ids.tolist(), logprobs.tolist()):
            out.write(json.dumps({"ids": row, "logprobs": [None, *values]}) + "\n")


def judged(path: str) -> tuple[list[dict], dict]:
    """The records of the candidates, and the verdict."""
    records = [json.loads(line) for line in run("fp8-judge", "m.h5", path, "--json", "-q").splitlines()]
    return [r for r in records if r["type"] == "candidate"], records[-1]


def main() -> None:
    logging.set_verbosity_error()
    text = (SRC / "share/text/tinyshakespeare.txt").read_bytes()[:60000]
    Path("text.txt").write_bytes(text)
    run("fp8-tokenize", "text.txt", "-o", "d.h5", "-q")
    run("fp8-init", "tiny", "-o", "start.h5", "-q", *(word for pair in SHAPE for word in ("--set", pair)))
    run("fp8-step", "start.h5", "--data", "d.h5", "--out", "run", "--steps", "60", "--seq-length", "64", "--lr", "3e-3", "-q")
    run("fp8-export", "run@last", "-o", "hf", "-q")
    run("fp8-convert", "hf", "-o", "m.h5", "-q")
    model = AutoModelForCausalLM.from_pretrained("hf", dtype=torch.bfloat16).eval()
    ids = torch.tensor([list(text[i * LENGTH:i * LENGTH + LENGTH + 1]) for i in range(SEQUENCES)])
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits
    write_rollouts("one.jsonl", logits, ids, 1)
    candidates, verdict = judged("one.jsonl")
    for c in sorted(candidates, key=lambda r: r["k3"]):
        print(f"# {c['recipe'] or c['precision']:20} {c['k3']:8.2g} {c['mean_abs']:8.2g} {c['mult_prob_error']:8.5g}")
    named = verdict["explained"] and verdict["candidate"] == "bf16" and verdict["change"] is None
    tap.result(named, "bf16 explains transformers in bf16", verdict["text"])
    for temperature in (0.7, 1.3):
        write_rollouts("t.jsonl", logits, ids, temperature)
        _, verdict = judged("t.jsonl")
        named = verdict["explained"] and verdict["candidate"] == "bf16" and verdict["change"] == "temperature"
        tap.result(named and abs(verdict["temperature"] - temperature) < 0.01, f"temperature {temperature} is named", verdict["text"])
    tap.done()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
        os.chdir("/")
