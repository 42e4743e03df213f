#!/usr/bin/env python3
"""Computes, without a GPU, the expected time of a step of Llama-3 8B on H100 GPUs, in bf16 and in FP8. Nothing here is
measured: tests/kernels/step.tsv has the launches, bytes and FLOPs of a model with a 32nd of every width, counted
kernel by kernel, and tests/sass/budgets the instructions of kernels; both are tests. Usage:

    tests/bench/estimate.py [--ranks N] [--sequences N] [--length N] [--NAME VALUE of a figure below]

Sizes scale as follows. In a layer bytes of a token grow with the width, FLOPs of a token and what does not depend on
tokens with its square. In the rest of a step, which is the embedding and the head, one width is the vocabulary. The
first layer adds nothing in its first norm, which the rest corrects: it has one launch of add_rmsnorm less than none.
The time of a kernel is the longer of those of its bytes and its instructions, that of a GEMM the longer of those of its
FLOPs and its bytes, and each launch takes a fixed time besides. Attention is not that of the counted kernels but
cuDNN's, by its FLOPs. Gathers and reduce-scatters of layers run beside the compute of others; only what exceeds it
counts.
"""

import argparse
import collections
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMALL = {"hidden": 128, "vocabulary": 512}  # of step.tsv
LARGE = {"hidden": 4096, "vocabulary": 128256, "layers": 32, "heads": 32, "head": 128}
PARAMETERS = {"layer": 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336) + 2 * 4096, "rest": 2 * 128256 * 4096 + 4096}
HEAD_BLOCK_BYTES = 1 << 30  # of logits on a device: plan_fitting() of lib/shard/src/sharded_model.cc
# name: value, unit, meaning. NVIDIA's data sheet of the H100 SXM, or an assumption.
FIGURES = {
    "bf16": (989.0, "TFLOP/s", "dense bf16, data sheet"),
    "fp8": (1979.0, "TFLOP/s", "dense FP8, data sheet"),
    "memory": (3.35, "TB/s", "memory, data sheet"),
    "link": (360.0, "GB/s", "all-gather and reduce-scatter over NVLink, of 450 GB/s in each direction, assumed"),
    "launch": (3.0, "us", "from the end of a kernel to the begin of the next, assumed"),
    "gemm-share": (0.7, "", "share of the peak that a large GEMM reaches, assumed"),
    "memory-share": (0.85, "", "share of the memory's rate that a kernel reaches, assumed"),
    "attention": (450.0, "TFLOP/s", "cuDNN's attention, forward and backward together, assumed"),
    "clock": (1.755, "GHz", "of 132 multiprocessors with 4 warp instructions a cycle"),
}
# Launches whose time is also bounded by instructions: kernel; the budget, of "all" its instructions or of its "loop", which is more than a thread executes;
# for so many elements; and bytes of an element that is read. "update cast" is of f32 weights, after the micro-batches.
INSTRUCTIONS = {"cast": ("cast_kernel<Bf16,*,false>", "all", 64, 2), "update cast": ("cast_kernel<float,*,false>", "all", 64, 4),
                "codes": ("repack_kernel<*", "all", 64, 1), "amax": ("amax_kernel<*", "loop", 32, 2)}
Row = collections.namedtuple("Row", "recipe part kernel launches read read_token written written_token accessed accessed_token "
                             "flops_token")


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                words = line.rstrip("\n").split("\t")
                yield Row(*words[:3], *map(float, words[3:]))


def read_instructions(path):
    """The instructions of each kernel, by pattern: of all and of the loop."""
    of = {}
    with open(path, encoding="utf-8") as file:
        for words in (line.split("#")[0].split() for line in file):
            if words:
                of[words[0]] = {name: float(n) for name, n in (("all", words[4]), ("loop", words[5])) if n != "-"}
    return of


class Estimate:
    def __init__(self, options):
        self.options = options
        self.figure = {name: getattr(options, name.replace("-", "_")) for name in FIGURES}
        self.tokens = options.sequences * options.length
        self.width = LARGE["hidden"] / SMALL["hidden"]
        self.vocabulary = LARGE["vocabulary"] / SMALL["vocabulary"]
        self.instructions = read_instructions(os.path.join(ROOT, "tests/sass/budgets"))

    def bytes_time(self, count):
        return count / (self.figure["memory"] * 1e12 * self.figure["memory-share"])

    def scaled(self, row, fixed, token):
        """Bytes of the large model."""
        layer = row.part.endswith("of a layer")
        wide = self.width if layer else self.vocabulary
        logits = not layer and (row.kernel == "cross-entropy" or row.kernel.startswith("GEMM "))
        return fixed * self.width * wide + token * (wide if logits else self.width) * self.tokens

    def gemm(self, row):
        """Seconds of the GEMMs of a row."""
        layer = row.part.endswith("of a layer")
        flops = row.flops_token * self.width * (self.width if layer else self.vocabulary) * self.tokens
        blocks = 1 if layer else -(-self.tokens * LARGE["vocabulary"] * 2 // HEAD_BLOCK_BYTES)
        moved = self.scaled(row, (row.read + row.written) * blocks, row.read_token + row.written_token)
        peak = self.figure["fp8" if row.kernel.endswith("fp8") else "bf16"] * 1e12 * self.figure["gemm-share"]
        return max(flops / peak, self.bytes_time(moved)) + row.launches * blocks * self.figure["launch"] * 1e-6

    def kernel(self, row):
        """Seconds of the launches of a row without their gaps."""
        time = self.bytes_time(self.scaled(row, row.read + row.written, row.read_token + row.written_token))
        name = ("update " if row.part.startswith("update") else "") + row.kernel
        if name in INSTRUCTIONS:
            pattern, which, each, size = INSTRUCTIONS[name]
            elements = self.scaled(row, row.read, row.read_token) / size
            rate = 132 * 4 * 32 * self.figure["clock"] * 1e9
            time = max(time, elements * self.instructions[pattern][which] / each / rate)
        return time

    def attention(self):
        """Seconds of attention in a layer: 2 GEMMs forward and 5 backward over half of the scores."""
        scores = self.options.sequences * LARGE["heads"] * self.options.length**2 / 2
        return 7 * 2 * scores * LARGE["head"] / (self.figure["attention"] * 1e12)

    def communication(self, codes):
        """Seconds of two gathers of the weights and a reduce-scatter of f32 gradients. NCCL gets the tensors of a layer as one group, one launch."""
        n = self.options.ranks
        layer = PARAMETERS["layer"] * LARGE["layers"]
        moved = 2 * (layer * (1 if codes else 2) + PARAMETERS["rest"] * 2) + 4 * (layer + PARAMETERS["rest"])
        launches = 3 * (LARGE["layers"] + 1) * self.figure["launch"] * 1e-6
        return moved * (n - 1) / n / (self.figure["link"] * 1e9) + launches if n > 1 else 0.0

    def step(self, recipe, rows):
        times = collections.OrderedDict((k, 0.0) for k in (
            "GEMMs of linears", "GEMMs of the head", "attention", "casts and scales", "other kernels", "launches",
            "norm and update", "communication not hidden"))
        for row in rows:
            layer = row.part.endswith("of a layer")
            if row.part.startswith("update"):
                each = LARGE["layers"] if layer else 1
                times["norm and update"] += each * (self.kernel(row) / self.options.ranks +
                                                    row.launches * self.figure["launch"] * 1e-6)
            elif row.kernel.startswith("GEMM "):
                times["GEMMs of linears" if layer else "GEMMs of the head"] += \
                    (LARGE["layers"] if layer else 1) * self.gemm(row)
            elif not row.kernel.startswith("attention"):
                casts = row.kernel in ("cast", "codes", "amax", "amax: begin", "scale", "block scales", "fold scales",
                                       "reciprocals", "upcast", "fold", "magnitudes", "fill", "delayed scales")
                each = LARGE["layers"] if layer else 1
                times["casts and scales" if casts else "other kernels"] += each * self.kernel(row)
                times["launches"] += each * row.launches * self.figure["launch"] * 1e-6
        times["attention"] = LARGE["layers"] * (self.attention() + 3 * self.figure["launch"] * 1e-6)
        compute = sum(times.values()) - times["norm and update"]
        codes = recipe in ("tensorwise", "current", "delayed")
        times["communication not hidden"] = max(0.0, self.communication(codes) - compute)
        return times


def main():
    parser = argparse.ArgumentParser(description="Computes the time of a step of Llama-3 8B on H100 GPUs.")
    parser.add_argument("--ranks", type=int, default=8, help="GPUs, each with one rank")
    parser.add_argument("--sequences", type=int, default=8, help="sequences of a step on each rank")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence")
    for name, (value, unit, meaning) in FIGURES.items():
        parser.add_argument("--" + name, type=float, default=value, help=f"{unit} {meaning}".strip())
    options = parser.parse_args()
    estimate = Estimate(options)
    rows = collections.OrderedDict()
    for row in read_rows(os.path.join(ROOT, "tests/kernels/step.tsv")):
        rows.setdefault(row.recipe, []).append(row)
    steps = {recipe: estimate.step(recipe, of) for recipe, of in rows.items()}
    print(f"Computed, not measured: Llama-3 8B, {options.ranks} H100, {options.sequences} sequences of "
          f"{options.length} tokens on each, ms of a step")
    width = max(len(k) for k in next(iter(steps.values())))
    print(" " * width + "".join(f"  {recipe:>10}" for recipe in steps))
    for part in next(iter(steps.values())):
        print(f"{part:{width}}" + "".join(f"  {1e3 * times[part]:10.1f}" for times in steps.values()))
    totals = {recipe: sum(times.values()) for recipe, times in steps.items()}
    print(f"{'a step':{width}}" + "".join(f"  {1e3 * t:10.1f}" for t in totals.values()))
    print(f"{'speed relative to bf16':{width}}" + "".join(f"  {totals['bf16'] / t:10.2f}" for t in totals.values()))


if __name__ == "__main__":
    main()
