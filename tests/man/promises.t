#!/usr/bin/env python3
"""Checks that each guarantee of fp8(7) lists test files that exist, and that the walks of fp8-hacking(7) name functions of their files."""

import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from mdoc import Tap  # noqa: E402

SRC = Path(os.environ.get("SRC") or Path(__file__).resolve().parents[2]).resolve()
SECTION = ".Ss Guarantees and their tests"


def walks(tap: Tap) -> None:
    """Each item of the walks names functions, then the source that defines them."""
    section = (SRC / "man/man7/fp8-hacking.7").read_text().split(".Ss Three walks\n")[-1].split("\n.Ss ")[0]
    names: list[str] = []
    checked = 0
    for macro, word in re.findall(r"^\.(Fn|Pa) (\S+)", section, re.M):
        if macro == "Fn":
            names.append(word)
            continue
        source = SRC / word
        text = source.read_text() if source.exists() else ""
        gone = [name for name in names if not re.search(rf"\b{name}\(", text)]
        tap.result(bool(text) and not gone, f"fp8-hacking(7): {word} defines {' '.join(names)}", f"missing: {gone or word}")
        checked += len(names)
        names = []
    tap.result(checked >= 20, "fp8-hacking(7): the walks name at least 20 functions", f"{checked}")


def main() -> None:
    tap = Tap()
    page = (SRC / "man/man7/fp8.7").read_text()
    parts = page.split(SECTION + "\n")
    tap.result(len(parts) == 2, "fp8(7) has a section on guarantees")
    items = re.split(r"^\.It$", re.split(r"^\.El$", parts[-1], flags=re.M)[0], flags=re.M)[1:]
    tap.result(len(items) >= 10, "the section lists at least 10 guarantees", f"{len(items)}")
    for item in items:
        named = re.findall(r"^\.Pa (\S+)", item, re.M)
        words = " ".join(line for line in item.split("\n") if line and line[0] != ".")[:60]
        gone = [name for name in named if not (SRC / name).exists()]
        tap.result(bool(named) and not gone, f"{words}...: its tests exist", f"missing: {gone or 'any test'}")
    walks(tap)
    tap.done()


main()
