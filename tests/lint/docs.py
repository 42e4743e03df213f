#!/usr/bin/env python3
"""Reports public declarations in lib/*/include that need a `///` comment and have none. Usage: docs.py ROOT.
Types and functions with parameters need a comment above (`///`) or behind (`///<`) the declaration; overloads on adjacent lines share one.
No comment is needed for fields, enumerators, functions without parameters, constructors, destructors, operators, forward declarations,
deleted, defaulted and overriding functions, using-declarations, namespaces called detail, and definitions of functions declared above or,
for x_impl.h, in x.h."""

import re
import sys
from pathlib import Path

from cxx import Declaration, declarations
from files import listed

SILENT = re.compile(r"^(friend\b|static_assert\b|using\s+(namespace\b|enum\b|[\w:]+$))")


def needs_comment(declaration: Declaration) -> bool:
    """Whether the declaration needs a comment."""
    text = declaration.text
    if not declaration.public or declaration.kind == "forward" or SILENT.match(text):
        return False
    if re.search(r"=\s*(delete|default)$|\boverride\b|\bfinal$", text):
        return False
    if declaration.kind in ("value", "enumerator"):
        return False
    if declaration.kind == "function":
        constructor = declaration.name[:1].isupper()
        no_parameters = re.search(rf"\b{re.escape(declaration.name)}\(\)", text)
        return not (constructor or no_parameters or declaration.name.startswith(("operator", "~")))
    return not text.startswith("}")


def has_comment(declaration: Declaration, lines: list[str]) -> bool:
    above = lines[declaration.first - 2].strip() if declaration.first >= 2 else ""
    if above.startswith("///") and not above.startswith("///<"):
        return True
    last = declaration.last if declaration.kind in ("value", "enumerator", "function") else declaration.first
    return any("///<" in line for line in lines[declaration.first - 1 : last])


def documented_elsewhere(path: Path) -> set[str]:
    """For x_impl.h: the names that x.h declares, where their comments are checked."""
    header = path.with_name(path.name.replace("_impl.h", ".h"))
    if header == path or not header.exists():
        return set()
    return {declaration.name for declaration in declarations(header.read_text(encoding="utf-8"))}


def findings(path: Path) -> list[tuple[int, str]]:
    """Line and message for each declaration without a required comment."""
    text, elsewhere = path.read_text(encoding="utf-8"), documented_elsewhere(path)
    lines = text.split("\n")
    found, previous = [], None
    for declaration in declarations(text):
        if not needs_comment(declaration) or (declaration.has_body and declaration.name in elsewhere):
            continue
        good = has_comment(declaration, lines)
        if not good and previous and previous.kind == declaration.kind:
            together = declaration.first <= previous.last + 1
            shared = declaration.kind == "function" and declaration.name == previous.name
            same_line = declaration.first == previous.first
            good = (together and shared) or same_line
        if good:
            previous = declaration
            elsewhere |= {declaration.name} if declaration.kind == "function" and not declaration.has_body else set()
        else:
            found.append((declaration.first, f"{declaration.kind} {declaration.name} has no /// comment"))
    return found


def main() -> None:
    root = Path(sys.argv[1])
    for name in listed(root):
        if re.fullmatch(r"lib/[^/]+/include/.*\.(h|cuh)", name):
            for line, message in findings(root / name):
                print(f"{name}:{line}: {message}")


main()
