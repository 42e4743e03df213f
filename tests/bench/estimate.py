#!/usr/bin/env python3
"""Computes, without a GPU, the expected time of a step of Llama-3 8B on H100 GPUs, in bf16 and in FP8. Nothing here is
measured: tests/kernels/step.tsv has the launches, bytes and FLOPs of a model with a 32nd of every width, counted
kernel by kernel, and tests/sass/budgets the instructions of kernels; both are tests. Usage:

    tests/bench/estimate.py [--ranks N] [--sequences N] [--length N] [--NAME VALUE of a figure below]

Each figure has two values, that which favours FP8 least and that which favours it most; so has each result. Without
--sequences and --length there is a table for each of two shapes.

Sizes scale as follows. In a layer bytes of a token grow with the width, FLOPs of a token and what does not depend on
tokens with its square. In the rest of a step, which is the embedding and the head, one width is the vocabulary. The
first layer adds nothing in its first norm, which the rest corrects: it has one launch of add_rmsnorm less than none.
The time of a kernel is the longer of those of its bytes and its instructions, that of a GEMM the longer of those of its
FLOPs and its bytes, and each launch takes a fixed time besides. Attention is not that of the counted kernels but
cuDNN's, by its FLOPs and the bytes of stored gradients of scores. Gathers and reduce-scatters of layers run beside the
compute of others, which takes longer by a share of their time; besides only what exceeds the compute counts.
"""

import argparse
import collections
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMALL = {"hidden": 128, "vocabulary": 512}  # of step.tsv
LARGE = {"hidden": 4096, "vocabulary": 128256, "layers": 32, "heads": 32, "head": 128}
PARAMETERS = {"layer": 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336) + 2 * 4096, "rest": 2 * 128256 * 4096 + 4096}
HEAD_BLOCK_BYTES = 1 << 30  # of logits on a device: plan_fitting() of lib/shard/src/sharded_model.cc
# name: the value that favours FP8 least, that which favours it most, unit, meaning. NVIDIA's data sheet of the H100 SXM, or an assumption.
FIGURES = {
    "bf16": (989.0, 989.0, "TFLOP/s", "dense bf16, data sheet"),
    "fp8": (1979.0, 1979.0, "TFLOP/s", "dense FP8, data sheet"),
    "memory": (3.35, 3.35, "TB/s", "memory, data sheet"),
    "link": (300.0, 380.0, "GB/s", "all-gather and reduce-scatter over NVLink, of 450 GB/s in each direction, assumed"),
    "launch": (4.0, 2.0, "us", "from the end of a kernel to the begin of the next, assumed"),
    "bf16-share": (0.75, 0.65, "", "share of the peak that a large bf16 GEMM reaches, assumed"),
    "fast-share": (0.6, 0.72, "", "share that an FP8 GEMM reaches with fast accumulation, assumed"),
    "fp8-share": (0.5, 0.68, "", "share that an FP8 GEMM reaches without, assumed"),
    "memory-share": (0.75, 0.9, "", "share of the rate of memory that a kernel reaches, assumed"),
    "attention": (400.0, 500.0, "TFLOP/s", "attention of cuDNN, forward and backward together, assumed"),
    "score-passes": (2.0, 0.0, "", "times that gradients of scores are written or read: 2 if they are stored, 0 with ordered or atomic sums"),
    "contention": (0.15, 0.0, "", "share of the time of communication by which the compute beside it takes longer, assumed"),
    "counting": (1.0, 1.0, "", "share of steps whose casts count saturated and underflowed codes: fp8-step counts in each"),
    "clock": (1.4, 1.755, "GHz", "of 132 multiprocessors with 4 warp instructions a cycle"),
}
SHAPES = ((8, 1024), (1, 8192))  # sequences of a rank, and their tokens
# Llama-3 8B on 8 H100, 1 sequence of 8192 tokens on each: the speed relative to bf16 that torchao publishes in its README.
PUBLISHED = {"tensorwise": 1.25, "rowwise": 1.10}
FAST = ("forward",)  # GEMMs with fast accumulation, in recipes that have it: lib/quant/src/recipe.cc
SLOW = ("blockwise",)  # recipes without
# Launches whose time is also bounded by instructions: kernel; the budget, of its "path" or of its "loop", which is no less than a thread executes; for so
# many elements; and bytes of an element that is read. "update cast" is of f32 weights, after the micro-batches. A cast that counts has a kernel of its own.
COUNTS, COUNTS_NOT = ",true>", ",false>"
INSTRUCTIONS = {"cast": ("cast_kernel<Bf16,*" + COUNTS, "path", 64, 2), "update cast": ("cast_kernel<float,*" + COUNTS, "path", 64, 4),
                "codes": ("repack_kernel<*", "path", 64, 1), "amax": ("amax_kernel<*", "loop", 32, 2)}
Row = collections.namedtuple("Row", "recipe part kernel launches read read_token written written_token accessed accessed_token "
                             "flops_token")


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                words = line.rstrip("\n").split("\t")
                yield Row(*words[:3], *map(float, words[3:]))


def read_instructions(path):
    """The instructions of each kernel, by pattern: of the loop and of the longest path without a loop."""
    of = {}
    with open(path, encoding="utf-8") as file:
        for words in (line.split("#")[0].split() for line in file):
            if words:
                of[words[0]] = {name: float(n) for name, n in (("loop", words[5]), ("path", words[6])) if n != "-"}
    return of


class Estimate:
    """The times of a step of one shape, with the values of one case: 0 favours FP8 least, 1 most."""

    def __init__(self, options, sequences, length, case):
        self.options, self.sequences, self.length = options, sequences, length
        given = {name: getattr(options, name.replace("-", "_")) for name in FIGURES}
        self.figure = {name: values[case] if given[name] is None else given[name] for name, values in FIGURES.items()}
        self.tokens = sequences * length
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
        fp8 = row.kernel.endswith("fp8")
        fast = row.recipe not in SLOW and row.kernel.split()[1] in FAST
        share = "bf16-share" if not fp8 else "fast-share" if fast else "fp8-share"
        peak = self.figure["fp8" if fp8 else "bf16"] * 1e12 * self.figure[share]
        return max(flops / peak, self.bytes_time(moved)) + row.launches * blocks * self.figure["launch"] * 1e-6

    def kernel(self, row):
        """Seconds of the launches of a row without their gaps."""
        time = self.bytes_time(self.scaled(row, row.read + row.written, row.read_token + row.written_token))
        name = ("update " if row.part.startswith("update") else "") + row.kernel
        if name in INSTRUCTIONS:
            pattern, which, each, size = INSTRUCTIONS[name]
            elements = self.scaled(row, row.read, row.read_token) / size
            rate = 132 * 4 * 32 * self.figure["clock"] * 1e9
            share = self.figure["counting"] if pattern.endswith(COUNTS) else 1.0
            time = sum(part * max(time, elements * self.instructions[kernel][which] / each / rate)
                       for part, kernel in ((share, pattern), (1 - share, pattern.replace(COUNTS, COUNTS_NOT))))
        return time

    def attention(self):
        """Seconds of attention in a layer: 2 GEMMs forward and 5 backward over half of the scores, and all gradients of scores in bf16."""
        scores = self.sequences * LARGE["heads"] * self.length**2
        stored = self.bytes_time(2 * scores * self.figure["score-passes"])
        return 7 * 2 * scores / 2 * LARGE["head"] / (self.figure["attention"] * 1e12) + stored

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
            "norm and update", "beside communication", "communication not hidden"))
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
        communication = self.communication(codes)
        times["beside communication"] = self.figure["contention"] * min(communication, compute)
        times["communication not hidden"] = max(0.0, communication - compute)
        return times


def cell(values, digits):
    """The range of two values, or one if both look the same."""
    texts = [f"{v:.{digits}f}" for v in sorted(values)]
    return texts[0] if texts[0] == texts[1] else "-".join(texts)


def print_table(options, rows, sequences, length):
    cases = [{recipe: estimate.step(recipe, of) for recipe, of in rows.items()}
             for estimate in (Estimate(options, sequences, length, case) for case in (0, 1))]
    print(f"Computed, not measured: Llama-3 8B, {options.ranks} H100, {sequences} sequence{'s' * (sequences > 1)} of "
          f"{length} tokens on each, ms of a step")
    parts = next(iter(cases[0].values()))
    width = max(len(k) for k in parts)
    print(" " * width + "".join(f"  {recipe:>10}" for recipe in rows))
    for part in parts:
        print(f"{part:{width}}" + "".join(f"  {cell([1e3 * c[recipe][part] for c in cases], 0):>10}" for recipe in rows))
    totals = [{recipe: sum(times.values()) for recipe, times in c.items()} for c in cases]
    print(f"{'a step':{width}}" + "".join(f"  {cell([1e3 * t[recipe] for t in totals], 0):>10}" for recipe in rows))
    print(f"{'speed relative to bf16':{width}}" +
          "".join(f"  {cell([t['bf16'] / t[recipe] for t in totals], 2):>10}" for recipe in rows))
    if (options.ranks, sequences, length) == (8, 1, 8192):
        published = (f"{PUBLISHED[recipe]:.2f}" if recipe in PUBLISHED else "" for recipe in rows)
        print((f"{'torchao, published':{width}}" + "".join(f"  {p:>10}" for p in published)).rstrip())


def main():
    parser = argparse.ArgumentParser(description="Computes the time of a step of Llama-3 8B on H100 GPUs.")
    parser.add_argument("--ranks", type=int, default=8, help="GPUs, each with one rank")
    parser.add_argument("--sequences", type=int, help="sequences of a step on each rank")
    parser.add_argument("--length", type=int, help="tokens of a sequence")
    for name, (least, most, unit, meaning) in FIGURES.items():
        parser.add_argument("--" + name, type=float, help=f"{unit} {meaning} [{cell([least, most], 3)}]".strip())
    options = parser.parse_args()
    rows = collections.OrderedDict()
    for row in read_rows(os.path.join(ROOT, "tests/kernels/step.tsv")):
        rows.setdefault(row.recipe, []).append(row)
    shapes = SHAPES
    if options.sequences is not None or options.length is not None:
        shapes = ((options.sequences or SHAPES[0][0], options.length or SHAPES[0][1]),)
    for shape in shapes:
        print_table(options, rows, *shape)


if __name__ == "__main__":
    main()
