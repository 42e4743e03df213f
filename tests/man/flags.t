#!/usr/bin/env python3
"""Checks that a tool's help, completion and manual page list the same flags. Help and completion are generated from the
tool's flag table; the page is written by hand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from mdoc import Page, Tap, flags_in  # noqa: E402

SRC = Path(os.environ.get("SRC") or Path(__file__).resolve().parents[2]).resolve()
BIN = Path(os.environ.get("BIN") or SRC / "build/bin")


def printed(tool: str, *words: str) -> str:
    return subprocess.run([BIN / tool, *words], capture_output=True, text=True, check=True).stdout


def in_help(tool: str) -> set[str]:
    """Flags in the left column of the help: `  -o, --output FILE`, `      --[no-]name`."""
    found = set()
    for line in printed(tool, "--help").split("\n"):
        match = re.match(r"  (?:-(\w), |    )--(\[no-\])?([a-z0-9-]+)", line)
        if match:
            letter, negative, name = match.groups()
            found |= {"--" + name} | ({"-" + letter} if letter else set()) | ({"--no-" + name} if negative else set())
    return found


def in_completion(tool: str) -> set[str]:
    """Flags that bash completes after a dash; runs bash with the completion script."""
    function = "_" + tool.replace("-", "_")
    script = printed(tool, "--completion", "bash") + f"\nCOMP_WORDS=({tool} -) COMP_CWORD=1\n{function}\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    return set(out.split())


def in_synopsis(page: Page) -> set[str]:
    """Flags of the synopsis; `-nfqv` counts as four flags."""
    found = set()
    for line in page.part("SYNOPSIS"):
        for flag in flags_in(line.text):
            found |= {flag} if flag.startswith("--") else {"-" + letter for letter in flag[1:]}
    return found


def config_names() -> tuple[set[str], set[str]]:
    """Names of a configuration: those that fp8-step --print-config prints, and those that fp8-config(5) lists."""
    words = ("m.h5", "--data", "d.h5", "--out", "run", "--steps", "1", "--print-config")
    page = (SRC / "man/man5/fp8-config.5").read_text()
    items = re.search(r"^\.Bl -tag.*?\n(.*?)^\.El$", page, re.M | re.S).group(1)
    listed = re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)*(?=[, \n])", re.sub(r"^\.It.*$|\(.*?\)|, as .*$|; .*$", "", items, flags=re.M))
    return set(json.loads(printed("fp8-step", *words))), set(listed)


def short_of(wanted: set[str], found: set[str]) -> str:
    return ", ".join(sorted(wanted - found))


def main() -> None:
    tap = Tap()
    tools = sorted(path.name for path in BIN.iterdir())
    for tool in tools:
        table = in_help(tool)
        tap.result(len(table) > 5, f"{tool}: the help lists flags", f"found {sorted(table)}")
        completed = in_completion(tool)
        tap.result(completed == table, f"{tool}: the completion offers the flags of the help",
                   f"missing: {short_of(table, completed)}", f"unknown: {short_of(completed, table)}")
        path = SRC / f"man/man1/{tool}.1"
        tap.result(path.exists(), f"{tool}: the tool has a manual page")
        if not path.exists():
            continue
        page = Page(path)
        described = page.flags()
        # A page may describe --no-name of a toggle that is off by default: the tools accept that form too.
        known = table | {"--no-" + flag[2:] for flag in table if flag.startswith("--")}
        tap.result(not table - described, f"{tool}: the page describes every flag",
                   f"missing: {short_of(table, described)}")
        tap.result(not described - known, f"{tool}: the page describes no unknown flag",
                   f"unknown: {short_of(described, known)}")
        tap.result(not in_synopsis(page) - known, f"{tool}: the synopsis lists no unknown flag",
                   f"unknown: {short_of(in_synopsis(page), known)}")
    tap.result(bool(tools), "there are tools")
    printed_names, listed = config_names()
    tap.result(listed == printed_names, "fp8-config(5) lists the names of --print-config",
               f"differ: {sorted(listed ^ printed_names)}")
    tap.done()


main()
