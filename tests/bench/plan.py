#!/usr/bin/env python3
"""Compares fp8-plan with published runs: tests/bench/plan.py PUBLISHED.csv [-v]

PUBLISHED.csv has a row for each run, with the columns source, model, gpu, gpus, tp, pp, cp, ep, vp, dp_kind, seq,
global_batch, micro_batch, precision, recompute and tokens_per_s_per_gpu. Rows that cannot be expressed are counted by
reason: other model families, context parallelism, machines without a file, formats that no recipe has. Beside each
prediction, the middle of the interval, stands a toy: 62 % of the dense bf16 peak, and 1.42 times that in FP8.
By source: the number of runs; the median of |predicted / published - 1| of both; the share of pairs of runs of one model
and precision whose published speeds differ by 5 % that both order as published; the median error of the ratio FP8 / bf16
of runs that differ in precision alone; the share of runs inside the interval; the median width, high / low."""

import collections
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLAN = os.path.join(os.environ.get("BIN", os.path.join(ROOT, "build/bin")), "fp8-plan")


def llama(layers, hidden, inner, heads, groups, vocabulary=128256, **more):
    return {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
            "num_key_value_heads": groups, "vocab_size": vocabulary, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, **more}


def qwen(layers, hidden, inner, heads, groups, tied):
    return llama(layers, hidden, inner, heads, groups, 151936, model_type="qwen2", tie_word_embeddings=tied)


def qwen3_moe(layers, hidden, inner, heads, groups, experts):
    return llama(layers, hidden, inner, heads, groups, 151936, model_type="qwen3_moe", head_dim=128, num_experts=experts,
                 num_experts_per_tok=8, moe_intermediate_size=inner, norm_topk_prob=True)


MODELS = {
    "llama3 8b": llama(32, 4096, 14336, 32, 8), "llama3 70b": llama(80, 8192, 28672, 64, 8), "llama3 405b": llama(126, 16384, 53248, 128, 8),
    "llama3 70b 12-layer proxy": llama(12, 8192, 28672, 64, 8), "llama3 405b 4-layer proxy": llama(4, 16384, 53248, 128, 8),
    "qwen3 8b": llama(36, 4096, 12288, 32, 8, 151936, model_type="qwen3", head_dim=128),
    "qwen2.5 0.5b": qwen(24, 896, 4864, 14, 2, True), "qwen2.5 1.5b": qwen(28, 1536, 8960, 12, 2, True), "qwen2.5 3b": qwen(36, 2048, 11008, 16, 2, True),
    "qwen2.5 7b": qwen(28, 3584, 18944, 28, 4, False), "qwen2.5 14b": qwen(48, 5120, 13824, 40, 8, False), "qwen2.5 32b": qwen(64, 5120, 27648, 40, 8, False),
    "qwen3 30b a3b": qwen3_moe(48, 2048, 768, 32, 4, 128), "qwen3 235b a22b": qwen3_moe(94, 4096, 1536, 64, 4, 128),
}
# Name of a machine file, flags that change it, and the dense bf16 peak in TFLOP/s. The H100 of 96 GB has HBM2e of 2.4 TB/s
# and 500 W; its GEMMs count as slower by the square root of 500 / 700.
HBM2E = [f"--set=machine.{k}={v}" for k, v in (
    ("bytes.cast", "[1.65e12,2.0e12]"), ("bytes.kernel", "[1.5e12,2.0e12]"), ("bytes.optimizer", "[1.43e12,2.0e12]"),
    ("gemm.bf16.rate", "[543e12,651e12]"), ("gemm.fp8.rate", "[1006e12,1234e12]"), ("gemm.fp8_accurate.rate", "[887e12,1166e12]"))]
MACHINES = {
    "H100": ("h100-sxm", [], 989), "H200": ("h200", [], 989), "B200": ("b200", [], 2250), "GB200": ("gb200", [], 2500),
    "H100 96GB HBM2e 500W": ("h100-sxm", ["--set=machine.memory=101e9"] + HBM2E, 989), "Blackwell SM100, 184 GiB": ("b200", [], 2250),
}


def model_of(name):
    key = name.lower().replace("_", " ").replace("llama3.1", "llama3").replace("llama3 8b sft", "llama3 8b").strip()
    return key if key in MODELS else None


def recipe_of(precision):
    p = precision.lower()
    if p == "bf16":
        return "bf16"
    for word, recipe in (("nvfp4", "nvfp4"), ("rowwise_with_gw_hp", "rowwise_with_gw_hp"), ("rowwise", "rowwise"), ("tensorwise", "tensorwise"), ("per-tensor current", "tensorwise"),
                         ("mx", "mxfp8"), ("fp8-cs", "current")):
        if word in p and not (word == "mx" and "fp8-cs" in p):
            return recipe
    return "current" if p == "fp8" else None


class Refused(Exception):
    pass


def flags_of(row):
    """The flags of fp8-plan for a published run."""
    model, recipe = model_of(row["model"]), recipe_of(row["precision"])
    if model is None:
        raise Refused("other model family")
    if row["gpu"] not in MACHINES:
        raise Refused("machine without a file")
    if recipe is None or "tail" in row["precision"]:
        raise Refused("other format")
    if int(row["cp"] or 1) > 1:
        raise Refused("context parallelism")
    gpus, tp, pp, ep = int(row["gpus"]), int(row["tp"] or 1), int(row["pp"] or 1), int(row["ep"] or 1)
    parts = gpus // (tp * pp)
    micro = row["micro_batch"].replace("local", "").strip()
    if not micro.isdigit() or not row["global_batch"].isdigit() or not row["seq"].isdigit():
        raise Refused("batch not stated")
    micro = int(micro)
    if row["micro_batch"].startswith("local"):  # the sequences of a rank, which pass through the stages one by one
        micro = 1
    accumulation = int(row["global_batch"]) // (micro * parts)
    if accumulation < 1:
        raise Refused("batch not stated")
    machine, changes, _ = MACHINES[row["gpu"]]
    flags = ["--machine", machine, *changes, "--ranks", str(gpus), "--tp", str(tp), "--pp", str(pp), "--ep", str(ep), "--seq-length", row["seq"],
             "--batch-size", str(micro), "--grad-accumulation", str(accumulation), "--no-deterministic"]
    flags += ["--precision", "bf16"] if recipe == "bf16" else ["--recipe", recipe]
    flags += ["--zero", "1"] if "zero1" in row["dp_kind"] else []
    r = row["recompute"]
    flags += ["--recompute", "full"] if r == "full" else ["--recompute", "selective"] if r.startswith("selective") else []
    if "llmq" in row["source"]:
        flags += ["--moments", "bf16", "--fp8-format", "e4m3"] if recipe != "bf16" else ["--moments", "bf16"]
    elif "torchtitan" in row["source"] or "pytorch/ao" in row["source"]:
        flags += ["--as", "fsdp2"]
    elif "SimuMax" not in row["source"]:  # whose runs have no overlap
        flags += ["--as", "megatron", "--reduce-dtype", "bf16"]
        if row["vp"].isdigit() and pp > 1:
            flags += ["--vp", row["vp"]]
    return model, flags


def predict(model, flags, folder):
    path = os.path.join(folder, model.replace(" ", "-") + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(MODELS[model], file)
    run = subprocess.run([PLAN, path, "--json", "--quiet", *flags], capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise Refused(run.stderr.strip().split(": ", 2)[-1][:60])
    return json.loads(run.stdout.splitlines()[-1])["tokens_per_s_per_rank"]


def toy(row, model):
    c = MODELS[model]
    width, head = c["hidden_size"], c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    attention = width * head * 2 * (c["num_attention_heads"] + c["num_key_value_heads"])
    inner = 3 * width * (c["moe_intermediate_size"] * c["num_experts_per_tok"] if "num_experts" in c else c["intermediate_size"])
    flops = 6 * (c["num_hidden_layers"] * (attention + inner) + width * c["vocab_size"])
    flops += 6 * c["num_hidden_layers"] * int(row["seq"]) * head * c["num_attention_heads"]
    return 0.62 * MACHINES[row["gpu"]][2] * 1e12 * (1 if recipe_of(row["precision"]) == "bf16" else 1.42) / flops


Run = collections.namedtuple("Run", "row flags model recipe published low high toy")


def middle(run):
    return math.sqrt(run.low * run.high)


def order(runs, of):
    """The share of pairs of one model and precision, with different settings, whose speeds differ by 5 % that `of` orders as published."""
    right = pairs = 0
    for i, a in enumerate(runs):
        for b in runs[:i]:
            if (a.model, a.recipe, a.row["gpu"]) == (b.model, b.recipe, b.row["gpu"]) and a.flags != b.flags and abs(math.log(a.published / b.published)) > 0.05:
                pairs += 1
                right += (of(a) - of(b)) * (a.published - b.published) > 0
    return right / pairs if pairs else math.nan


def ratios(runs, of):
    """The errors of the ratio to bf16 of runs that differ in precision alone."""
    same = ("source", "model", "gpu", "gpus", "tp", "pp", "cp", "ep", "seq", "global_batch")
    bf16 = {tuple(r.row[k] for k in same): r for r in runs if r.recipe == "bf16"}
    errors = []
    for r in runs:
        base = bf16.get(tuple(r.row[k] for k in same))
        if r.recipe != "bf16" and base is not None:
            errors.append(abs((of(r) / of(base)) / (r.published / base.published) - 1))
    return errors


def line(name, runs):
    errors = [abs(middle(r) / r.published - 1) for r in runs]
    toys = [abs(r.toy / r.published - 1) for r in runs]
    both = ratios(runs, middle), ratios(runs, lambda r: r.toy)
    text = [f"{statistics.median(e):.3f}" if e else "-" for e in both]
    inside = sum(r.low <= r.published <= r.high for r in runs) / len(runs)
    width = statistics.median(r.high / r.low for r in runs)
    print(f"{name:<34} {len(runs):4} {statistics.median(errors):7.3f} {statistics.median(toys):7.3f} {order(runs, middle):7.2f} {order(runs, lambda r: r.toy):7.2f} "
          f"{text[0]:>7} {text[1]:>7} {inside:7.2f} {width:7.2f}")


def main():
    refused, by_source = collections.Counter(), collections.OrderedDict()
    with open(sys.argv[1], encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        for row in csv.DictReader(file):
            try:
                model, flags = flags_of(row)
                low, high = predict(model, flags, folder)
            except Refused as why:
                refused[str(why)] += 1
                continue
            run = Run(row, flags, model, recipe_of(row["precision"]), float(row["tokens_per_s_per_gpu"]), low, high, toy(row, model))
            words = row["source"].split()
            by_source.setdefault(words[1].split("@")[0].split("/")[1] + " " + row["gpu"].split()[0] + (" experts" if "num_experts" in MODELS[model] else ""), []).append(run)
            if "-v" in sys.argv:
                print(f"{row['model']:<26} {row['gpu'][:10]:<10} {row['gpus']:>5} tp{row['tp']} pp{row['pp']} ep{row['ep']} {run.recipe:<10} "
                      f"{low:9.0f} {run.published:9.0f} {high:9.0f}  {middle(run) / run.published:5.2f} toy {run.toy / run.published:5.2f}")
    print(f"{'source':<34} {'runs':>4} {'error':>7} {'toy':>7} {'order':>7} {'toy':>7} {'ratio':>7} {'toy':>7} {'inside':>7} {'width':>7}")
    for name, runs in by_source.items():
        line(name, runs)
    line("dense", [r for runs in by_source.values() for r in runs if "num_experts" not in MODELS[r.model]])
    print("not expressed:", "; ".join(f"{n} {why}" for why, n in refused.most_common()))


if __name__ == "__main__":
    main()
