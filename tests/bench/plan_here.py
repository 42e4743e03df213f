#!/usr/bin/env python3
"""Compares fp8-plan with steps on this machine: plan_here.py [MACHINE.json] [--steps N]

Without MACHINE.json, fp8-bench --machine measures it first. Each run is planned and then trained for some steps, of which the fastest counts,
since other programs only slow steps down. Prints predicted and measured seconds, the relative error, and the median of its magnitude.
Nothing else may use the processor. As root, Open MPI needs OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1."""
import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(ROOT, "build", "bin")

# KEY=VALUE of the configuration, over a preset
MODELS = {
    "124M": ("llama-124m", []),
    "15M": ("llama-124m", ["hidden_size=288", "intermediate_size=768", "num_hidden_layers=6", "num_attention_heads=6", "num_key_value_heads=6",
                           "head_dim=48", "vocab_size=32000"]),
    "experts": ("mixtral-tiny", ["hidden_size=288", "intermediate_size=384", "num_hidden_layers=6", "num_attention_heads=6", "num_key_value_heads=6",
                                 "head_dim=48", "vocab_size=32000", "num_local_experts=8", "max_position_embeddings=1024"]),
}
# model, ranks, sequences x tokens of a rank, flags
RUNS = [
    ("124M", 1, 1, 64, "--precision bf16"),
    ("124M", 1, 1, 512, "--precision bf16"),
    ("124M", 1, 1, 256, "--precision fp8 --recipe rowwise"),
    ("124M", 1, 1, 1024, "--precision fp8 --recipe tensorwise"),
    ("15M", 1, 1, 64, "--precision bf16"),
    ("15M", 1, 2, 1024, "--precision bf16"),
    ("15M", 1, 1, 512, "--precision fp8 --recipe tensorwise"),
    ("15M", 1, 4, 128, "--precision fp8 --recipe blockwise"),
    ("15M", 2, 1, 512, "--precision bf16 --dp-shard 2"),
    ("15M", 2, 1, 512, "--precision fp8 --recipe tensorwise --tp 2"),
    ("15M", 2, 1, 512, "--precision bf16 --pp 2 --grad-accumulation 4"),
    ("experts", 2, 1, 512, "--precision bf16 --ep 2"),
]


def tool(name, *arguments):
    run = subprocess.run([os.path.join(BIN, name), *arguments], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{name} {' '.join(arguments)}: {run.stderr.strip()}")
    return run.stdout


def prepare(folder):
    with open(os.path.join(folder, "text"), "wb") as file:
        file.write(os.urandom(20000))
    for name, (preset, keys) in MODELS.items():
        tool("fp8-init", preset, "-o", os.path.join(folder, name + ".h5"), *[word for key in keys for word in ("--set", key)])
    tool("fp8-tokenize", os.path.join(folder, "text"), "-o", os.path.join(folder, "data.h5"), "--from", "text")


def predicted(machine, folder, model, ranks, batch, tokens, flags):
    words = [os.path.join(folder, model + ".h5"), "--machine", machine, "--ranks", str(ranks), "--batch-size", str(batch), "--seq-length", str(tokens)]
    record = json.loads(tool("fp8-plan", *words, *flags.split(), "--json", "--quiet").splitlines()[-1])
    return record["step_s"]


def measured(folder, steps, model, ranks, batch, tokens, flags):
    out = os.path.join(folder, "run")
    words = ["mpirun", "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
    words += [os.path.join(BIN, "fp8-step"), os.path.join(folder, model + ".h5"), "--data", os.path.join(folder, "data.h5"), "--out", out]
    words += ["--steps", str(steps), "--batch-size", str(batch), "--seq-length", str(tokens), *flags.split(), "--json", "--quiet"]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    subprocess.run(["rm", "-rf", out], check=True)
    if run.returncode != 0:
        raise SystemExit(f"fp8-step {flags}: {run.stderr.strip()}")
    records = [json.loads(line) for line in run.stdout.splitlines()]
    return min(r["step_s"] for r in records if r["type"] == "step" and r["step"] > 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("machine", nargs="?")
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        machine = arguments.machine or os.path.join(folder, "machine.json")
        if arguments.machine is None:
            tool("fp8-bench", "--machine", "-o", machine, "--quiet")
        prepare(folder)
        print(f"{'model':<8} {'ranks':>5} {'tokens':>8}  {'flags':<50} {'predicted, ms':>18} {'measured':>9} {'error':>7} inside")
        for run in RUNS:
            low, high = predicted(machine, folder, *run)
            seconds = measured(folder, arguments.steps, *run)
            error = math.sqrt(low * high) / seconds - 1
            errors.append(abs(error))
            model, ranks, batch, tokens, flags = run
            print(f"{model:<8} {ranks:5} {batch:3} x{tokens:4}  {flags:<50} {low * 1e3:8.1f}, {high * 1e3:8.1f} {seconds * 1e3:9.1f} {error:+7.2f} "
                  f"{'yes' if low <= seconds <= high else 'no'}", flush=True)
    print(f"median error {statistics.median(errors):.3f}")


if __name__ == "__main__":
    main()
