#!/usr/bin/env python3
"""Checks the walks of fp8-hacking(7) against the sources. An item of a walk names functions, then the file that defines them. A walk
begins with the functions of its first item. From these the test follows the calls in the bodies of the functions, in the order of the text,
and expects to reach every function of the walk, the files in the order of the page, and the functions of a file in the order of its item. If
a body calls a function several times, the last call counts, since an earlier one may finish earlier work, as in start_save(). A call is
resolved by name: to a crate that qualifies it, to another file after `.`, `->` or `::`, and otherwise to its own file first."""

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from mdoc import Tap  # noqa: E402

SRC = Path(os.environ.get("SRC") or Path(__file__).resolve().parents[2]).resolve()
PAGE = "man/man7/fp8-hacking.7"
SECTION = ".Ss Three walks\n"


@dataclass
class Function:
    """A function of a walk."""

    file: str
    name: str
    body: str = ""
    calls: list["Function"] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def walks() -> list[list[Function]]:
    """The functions of each walk, in the order of the page."""
    section = (SRC / PAGE).read_text(encoding="utf-8").split(SECTION)[-1].split("\n.Ss ")[0]
    found = []
    for text in re.findall(r"^\.Bl -enum.*?\n(.*?)^\.El", section, re.M | re.S):
        walk = []
        for names, file in re.findall(r"^\.It\n((?:\.Fn .*\n)+)\.Pa (\S+)", text, re.M):
            walk += [Function(file, name) for name in re.findall(r"^\.Fn (\S+)", names, re.M)]
        found.append(walk)
    return found


def plain(text: str) -> str:
    """The source without comments and without the contents of strings."""
    return re.sub(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"', lambda m: '""' if m.group()[0] == '"' else "", text)


def end_of(text: str, begin: int) -> int:
    """One past the parenthesis that closes the one at `begin`."""
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    return len(text)


def bodies(text: str, name: str) -> str:
    """The bodies, and the initializers of constructors, of all functions called `name` that are defined in the source. A body ends with the
    line of its closing bracket, which clang-format indents like the first line."""
    found = []
    for match in re.finditer(rf"^( *)(?!return\b)[^\n(=]*(?<![\w.>]){name}\(", text, re.M):
        begin = end_of(text, match.end() - 1)
        if not re.match(r"(\s|const\b|noexcept\b|override\b|final\b)*(\{|:[^;:])", text[begin:]):
            continue
        line = text[begin : text.index("\n", begin)]
        end = re.compile(rf"^{match.group(1)}\}}", re.M).search(text, begin)
        found.append(line if line.endswith("}") or not end else text[begin : end.end()])
    return "\n".join(found)


def target(caller: Function, qualifier: str, candidates: list[Function]) -> Function:
    """The function that a call means."""
    crate = qualifier[:-2] if qualifier.endswith("::") else ""
    near = Path(caller.file).parent

    def distance(one: Function) -> tuple:
        elsewhere = one.file != caller.file
        return (f"lib/{crate}/" not in one.file if crate else False, elsewhere != bool(qualifier), Path(one.file).parent != near)

    return min(candidates, key=distance)


def link(walk: list[Function]) -> None:
    """Finds bodies and calls. A function that no body calls is called through a pointer that the file of an earlier one contains."""
    texts: dict[str, str] = {}
    by_name: dict[str, list[Function]] = {}
    for function in walk:
        path = SRC / function.file
        text = texts.setdefault(function.file, plain(path.read_text(encoding="utf-8")) if path.exists() else "")
        function.body = bodies(text, function.name)
        by_name.setdefault(function.name, []).append(function)
    called = set()
    for function in walk:
        places = []
        for name, candidates in by_name.items():
            variable = r"(?: \w+)?" if name[0].isupper() else ""  # a constructor: `Name variable(`
            calls = list(re.finditer(rf"(\w+::|\.|->)?\b{name}>?{variable}\(", function.body))
            if calls:
                callee = target(function, calls[-1].group(1) or "", candidates)
                places.append((calls[-1].start(), callee))
                called.add(id(callee))
        function.calls = [callee for _, callee in sorted(places, key=lambda place: place[0]) if callee is not function]
    for i, function in enumerate(walk):
        if id(function) not in called:
            pointer = re.compile(rf"[(,{{]\s*{function.name}[,)}}]")
            holders = [one for one in walk[:i] if one.file != function.file and pointer.search(texts[one.file])]
            for one in holders[:1]:
                one.calls.append(function)


def order(walk: list[Function]) -> list[Function]:
    """The functions that are reached, in the order of calls."""
    reached: list[Function] = []

    def visit(function: Function) -> None:
        if any(function is other for other in reached):
            return
        reached.append(function)
        for callee in function.calls:
            visit(callee)

    for function in walk:
        if function.file == walk[0].file:
            visit(function)
    return reached


def check(tap: Tap, number: int, walk: list[Function]) -> None:
    files = list(dict.fromkeys(function.file for function in walk))
    runs = [f.file for i, f in enumerate(walk) if i == 0 or walk[i - 1].file != f.file]
    tap.result(runs == files, f"walk {number} names each file once", f"twice: {sorted({f for f in runs if runs.count(f) > 1})}")
    link(walk)
    for function in walk:
        tap.result(bool(function.body), f"walk {number}: {function} is defined there")
    reached = order(walk)
    lost = [str(function) for function in walk if not any(function is other for other in reached)]
    tap.result(not lost, f"walk {number}: each function is called by the ones before it", *lost)
    visited = list(dict.fromkeys(function.file for function in reached))
    tap.result(visited == files, f"walk {number}: the files are in the order of calls", "calls:", *visited, "page:", *files)
    for file in files:
        calls = [f.name for f in reached if f.file == file]
        page = [f.name for f in walk if f.file == file]
        tap.result(calls == page, f"walk {number}: the functions of {file} are in the order of calls", f"calls: {calls}", f"page: {page}")
    print(f"# walk {number}: {len(files)} files, {len(walk)} functions")


def main() -> None:
    tap = Tap()
    found = walks()
    tap.result(len(found) == 3 and all(found), "fp8-hacking(7) has three walks", f"{[len(walk) for walk in found]}")
    for number, walk in enumerate(found, 1):
        check(tap, number, walk)
    tap.done()


main()
