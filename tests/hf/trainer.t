#!/usr/bin/env python3
"""Twenty steps of the Trainer of transformers, in float32, beside fp8-step with what fp8-import makes of the same
file, full.yaml or lora.yaml; the records in the same order.
Rates are equal, and losses, gradient norms and trained weights differ by the order of sums. That holds only with the same clipping, the same tensors that
decay, and losses averaged over the targets of a step, whose micro-batches have different numbers of targets.
In qwen2, losses differ by 6e-7 nats. They differ by 3e-3 with --decay all or without decay, 0.1 without clipping, 0.4 without --warmup-from.
The Trainer of transformers 5.8.0 gives the same bits as that of 5.23.0. The rates of other schedules are compared with those of its functions."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file
from transformers import get_scheduler

sys.dont_write_bytecode = True
SRC = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SRC / "tests/man"))
from mdoc import Tap  # noqa: E402

EXAMPLE, MODELS = SRC / "examples/3-fine-tune", SRC / "tests/golden/models"
STEPS = 20
RATE, LOSS, NORM, WEIGHTS = 1e-15, 1e-5, 1e-5, 3e-4  # absolute, in nats, relative, relative L2
BIN = os.environ.get("BIN") or str(SRC / "build/bin")
ENVIRONMENT = os.environ | {"PATH": BIN + ":" + os.environ["PATH"], "FP8_SHARE": str(SRC / "share"), "OMP_NUM_THREADS": "1"}
# Flags, and the name of the same schedule in transformers with its arguments.
SCHEDULES = (
    ("--schedule linear", "linear", {}),
    ("--schedule constant", "constant_with_warmup", {}),
    ("--schedule cosine --min-lr 1e-4", "cosine_with_min_lr", {"min_lr": 1e-4}),
    ("--schedule wsd --decay-steps 6", "warmup_stable_decay", {"num_decay_steps": 6, "decay_type": "linear"}),
    ("--schedule wsd --decay-steps 6 --decay-shape cosine --min-lr 5e-4 --warmup-from 5e-4 --schedule-steps 11", "warmup_stable_decay",
     {"num_decay_steps": 6, "num_stable_steps": 2, "decay_type": "cosine", "min_lr_ratio": 0.5}),
    ("--schedule wsd --decay-steps 9 --decay-shape 1-sqrt", "warmup_stable_decay", {"num_decay_steps": 9, "decay_type": "1-sqrt"}),
)
tap = Tap()


def run(*command: str) -> str:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def steps(*command: str) -> list[dict]:
    return [r for r in map(json.loads, run("fp8-step", *command, "-q").splitlines()) if r["type"] == "step"]


def settings(kind: str) -> dict:
    return yaml.safe_load((SRC / f"tests/hf/{kind}.yaml").read_text())


def imported(model: str, kind: str) -> list[str]:
    """The flags of fp8-step that fp8-import makes of the keys, with the records in their order. Adapters come from PEFT's folder, which states theirs."""
    folder = f"{kind}-{model}-import"
    run("fp8-import", str(SRC / f"tests/hf/{kind}.yaml"), "--dataset-dir", ".", "--model", f"{model}-base", "-o", folder, "-q")
    given = json.loads(Path(folder, "run.json").read_text())
    kept = {key: value for key, value in given.items() if not key.startswith("lora-") and key != "rslora"}
    Path(folder, "kept.json").write_text(json.dumps(kept))
    return ["--config", f"{folder}/kept.json", "--sampler", "sequential"]


def distance(own: str, theirs: str) -> float:
    """Relative L2 distance of all tensors of two safetensors files together, in the format of the first."""
    a, b = load_file(own), load_file(theirs)
    if a.keys() != b.keys():
        return float("nan")
    pairs = [(a[key].double(), b[key].to(a[key].dtype).double()) for key in a]
    return float((sum((x - y).square().sum() for x, y in pairs) / sum(y.square().sum() for _, y in pairs)).sqrt())


def compare(name: str, own: list[dict], theirs: list[dict]) -> None:
    tap.result(len(own) == len(theirs) == STEPS, f"{name}: both make {STEPS} steps", f"{len(own)} and {len(theirs)}")
    for key, bound, relative in (("lr", RATE, False), ("loss", LOSS, False), ("grad_norm", NORM, True)):
        worst = max(abs(a[key] - b[key]) / (b[key] if relative else 1) for a, b in zip(own, theirs))
        tap.result(worst <= bound, f"{name}: {key} agrees in each step", f"largest difference {worst}, at most {bound}")
        print(f"# {name}: {key}: largest difference {worst:.2g}")


def train(model: str, kind: str) -> None:
    name, trained = f"{kind}-{model}", f"{kind}-{model}-trained"
    printed = run(sys.executable, str(SRC / "tests/hf/trainer.py"), str(SRC / f"tests/hf/{kind}.yaml"), f"{model}-base", "talks.jsonl", f"{name}-new", trained)
    theirs = [json.loads(line) for line in printed.splitlines()]
    start = ["--lora", f"{name}-new"] if kind == "lora" else []
    compare(name, steps(f"{model}.h5", "--data", "talks.h5", "--any-tokenizer", "--out", name, *imported(model, kind), *start), theirs)
    run("fp8-export", name, "-o", f"{name}-own", "-q", *(["--format", "peft"] if kind == "lora" else []))
    file = "adapter_model.safetensors" if kind == "lora" else "model.safetensors"
    apart = distance(f"{name}-own/{file}", f"{trained}/{file}")
    tap.result(apart <= WEIGHTS, f"{name}: the trained weights agree", f"relative distance {apart}, at most {WEIGHTS}")
    print(f"# {name}: weights {apart:.2g}, {sum(r['grad_norm'] > settings(kind)['max_grad_norm'] for r in theirs)} steps clipped")


def check_rates() -> None:
    """12 steps of each schedule, 3 of them of warmup, and of a cosine whose run ends before it."""
    for number, (words, name, arguments) in enumerate((*SCHEDULES, ("--schedule cosine --schedule-steps 30", "cosine", {}))):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
        schedule = get_scheduler(name, optimizer, num_warmup_steps=3, num_training_steps=30 if name == "cosine" else 12, scheduler_specific_kwargs=arguments)
        theirs = []
        for _ in range(12):
            theirs.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        own = steps("llama3.h5", "--data", "talks.h5", "--any-tokenizer", "--out", f"rates-{number}", "--steps", "12", "--seq-length", "64", "--batch-size",
                    "1", "--lr", "1e-3", "--warmup-steps", "3", "--warmup-from", "0", *words.split())
        worst = max(abs(a["lr"] - b) for a, b in zip(own, theirs, strict=True))
        tap.result(worst <= RATE, f"{words}: the rates are those of {name}", str([(a["lr"], b) for a, b in zip(own, theirs)]))


def main() -> None:
    data = ("fp8-tokenize", str(EXAMPLE / "conversations.jsonl"), "--tokenizer", str(EXAMPLE / "tokenizer"), "--template", settings("full")["template"], "-q")
    Path("talks.jsonl").write_text(run(*data, "--json"))
    run(*data, "-o", "talks.h5")
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    shutil.copy(EXAMPLE / "conversations.jsonl", ".")
    info = {"file_name": "conversations.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": tags}
    Path("dataset_info.json").write_text(json.dumps({"talks": info}))
    for model in ("qwen2", "llama3"):
        shutil.copytree(MODELS / model / "hf", f"{model}-base")
        run("fp8-convert", f"{model}-base", "-o", f"{model}.h5", "-q", "--dtype", "f32")
        for kind in ("full", "lora"):
            train(model, kind)
    check_rates()
    tap.done()


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    main()
    os.chdir("/")
