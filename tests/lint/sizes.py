#!/usr/bin/env python3
"""Reports files and functions that are too long, and task markers. Usage: sizes.py ROOT size|words.
  size   files over 600 lines, functions over 60 lines
  words  the three usual markers of unfinished work, see WORDS"""

import ast
import re
import sys
from pathlib import Path

from cxx import declarations
from files import listed, shebang, text_of

MAX_FILE, MAX_FUNCTION = 600, 60
CXX = re.compile(r"\.(cc|h|cu|cuh)$")
COUNTED = re.compile(r"\.(cc|h|cu|cuh|sh|py|t|mk)$|(^|/)Makefile$")
WORDS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
NOT_OURS = re.compile(r"^(share/text/|LICENSE$|tests/golden/.*\.json$)")


def in_cxx(text: str) -> list[tuple[int, str, int]]:
    """First line, name and number of lines of each function with a body."""
    return [(d.first, d.name, d.last - d.first + 1) for d in declarations(text) if d.kind == "function" and d.has_body]


def in_python(text: str) -> list[tuple[int, str, int]]:
    nodes = ast.walk(ast.parse(text))
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [(node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions]


def in_shell(text: str) -> list[tuple[int, str, int]]:
    found, start = [], None
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"(?:function )?(\w+) ?\(\) *\{(.*)$", line)
        if match and "}" not in match.group(2):
            start = (number, match.group(1))
        elif line == "}" and start:
            found.append((*start, number - start[0] + 1))
            start = None
    return found


def functions_of(path: Path, text: str) -> list[tuple[int, str, int]]:
    if CXX.search(path.name):
        return in_cxx(text)
    interpreter = shebang(path)
    if path.suffix == ".py" or interpreter.startswith("python"):
        return in_python(text)
    return in_shell(text) if interpreter in ("sh", "bash") or path.suffix == ".sh" else []


def main() -> None:
    root, what = Path(sys.argv[1]), sys.argv[2]
    for name in listed(root):
        path = root / name
        counted = COUNTED.search(name) or shebang(path)
        text = text_of(path) if what == "words" or counted else None
        if text is None:
            continue
        if what == "words" and not NOT_OURS.match(name):
            for match in WORDS.finditer(text):
                print(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}: do it or open an issue")
        if what == "size":
            length = text.count("\n")
            if length > MAX_FILE:
                print(f"{name}:{MAX_FILE + 1}: {length} lines, more than {MAX_FILE}")
            for line, function, size in functions_of(path, text):
                if size > MAX_FUNCTION:
                    print(f"{name}:{line}: function {function} has {size} lines, more than {MAX_FUNCTION}")


main()
