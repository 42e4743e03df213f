#!/usr/bin/env python3
"""Generates a small set of command lines that covers all pairs of values of the settings of fp8-step. The values are read
from the tool's completion, so a new recipe is tested without a change here.

    pairwise.py TOOL            prints the flags of one command line per line
    pairwise.py TOOL --check    reads such lines, prints the pairs that are missing, and fails if there are any

Unless FP8_LONG is set, each precision and recipe is in one command line only, instead of one with each value of the others.
"""

import itertools
import os
import subprocess
import sys

FLAGS = ["zero", "recompute", "master", "moments", "reduce-dtype"]


def choices(tool: str, flag: str) -> list[str]:
    function = "_" + tool.replace("-", "_")
    script = subprocess.run([tool, "--completion", "bash"], capture_output=True, text=True, check=True).stdout
    script += f'\nCOMP_WORDS=({tool} --{flag} "") COMP_CWORD=2\n{function}\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()
    if not found:
        raise SystemExit(f"pairwise.py: {tool} has no choices for --{flag}")
    return found


def factors(tool: str) -> list[list[str]]:
    """The flags for each value of each setting. Recipes are combined with --precision fp8 only."""
    precisions = [f"--precision {p}" for p in choices(tool, "precision") if p != "fp8"]
    recipes = [f"--precision fp8 --recipe {r}" for r in choices(tool, "recipe")]
    return [precisions + recipes] + [[f"--{f} {v}" for v in choices(tool, f)] for f in FLAGS] + [["", "--async-save"], ["", "--dp-replicate 2"]]


Cell = tuple[int, str]


def pairs_of(row: list[Cell]) -> set[tuple[Cell, Cell]]:
    """The pairs of a row, and each of its values paired with itself."""
    return set(itertools.combinations_with_replacement(sorted(row), 2))


def all_pairs(table: list[list[str]]) -> set[tuple[Cell, Cell]]:
    values = [(i, v) for i in range(len(table)) for v in table[i]]
    pairs = {(a, b) for a, b in itertools.combinations(values, 2) if a[0] != b[0]} | {(v, v) for v in values}
    return pairs if os.environ.get("FP8_LONG") else {(a, b) for a, b in pairs if a == b or a[0] != 0}


def covering(table: list[list[str]]) -> list[list[Cell]]:
    """Builds rows greedily: starts with a missing pair and adds, per setting, the value that covers the most missing pairs."""
    missing, rows = all_pairs(table), []
    while missing:
        row = sorted(set(min(missing, key=lambda pair: (pair[0] == pair[1], pair))))
        for i in range(len(table)):
            if any(i == j for j, _ in row):
                continue
            row.append((i, max(table[i], key=lambda v: len(pairs_of([*row, (i, v)]) & missing))))
        missing -= pairs_of(row)
        rows.append(sorted(row))
    return rows


def parse(table: list[list[str]], line: str) -> list[Cell]:
    padded = f" {line.strip()} "
    row = []
    for i, values in enumerate(table):
        named = [v for v in values if v and f" {v} " in padded]
        if named or "" in values:
            row.append((i, named[0] if named else ""))
    return row


def main() -> int:
    table = factors(sys.argv[1])
    if sys.argv[2:] != ["--check"]:
        for row in covering(table):
            print(" ".join(v for _, v in row if v))
        return 0
    missing = all_pairs(table)
    for line in sys.stdin:
        missing -= pairs_of(parse(table, line))
    for (_, a), (_, b) in sorted(missing):
        print(f"{a or 'without'} and {b or 'without'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
