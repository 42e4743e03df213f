#!/usr/bin/env python3
"""Checks that each guarantee of fp8(7) lists test files that exist."""

import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from mdoc import Tap  # noqa: E402

SRC = Path(os.environ.get("SRC") or Path(__file__).resolve().parents[2]).resolve()
SECTION = ".Ss Guarantees and their tests"


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
    tap.done()


main()
