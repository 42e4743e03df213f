#!/usr/bin/env python3
"""Includes that a crate's manifest does not name. The compiler refuses most of them; it cannot see a crate reached through another one,
nor a package, because Debian's headers all lie in /usr/include. Usage: includes.py ROOT.
  - fp8/<crate>/ only of crates that crate.mk names in `deps`
  - headers of a package only in the sources of the one crate that names it in `pkgs`, never in public headers"""

import re
import sys
from pathlib import Path

from files import listed

# What the path of an include begins with, and the package it belongs to.
PACKAGES = {
    r"hdf5(_hl)?\.h|H5\w+\.h": "hdf5", r"mpi\.h": "mpi", r"(oneapi/)?dnnl": "dnnl", r"nlohmann/": "nlohmann",
    r"cxxopts\.hpp": "cxxopts", r"xxhash\.h|xxh3\.h": "xxhash", r"pcre2": "pcre2", r"utf8proc\.h": "utf8proc", r"nccl\.h": "nccl", r"cudnn": "cudnn",
    r"cublasLt\.h": "cublaslt",
}
FOR_TESTS = {r"gtest/|gmock/": "tests", r"benchmark/": "bench"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)


def manifest(path: Path) -> dict[str, list[str]]:
    """The words behind each name of a crate.mk, and under `lines` the line of each name."""
    found: dict[str, list[str]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").replace("\\\n", " ").split("\n"):
            match = re.match(r"(\w+)\s*:?=\s*(.*)", line)
            if match:
                found[match.group(1)] = match.group(2).split()
    return found


def complaint(include: str, crate: str, part: str, told: dict[str, list[str]]) -> str:
    """What is wrong with one include of `crate` in its folder `part`; empty when nothing is."""
    deps = told.get("deps", [])
    match = re.match(r"fp8/([a-z0-9_]+)/", include)
    if match and match.group(1) != crate and match.group(1) not in deps and "$(seen)" not in deps:
        return f"{include}: crate.mk does not name {match.group(1)} in deps"
    for pattern, package in PACKAGES.items():
        if re.match(pattern, include):
            if part == "include":
                return f"{include}: package {package} in a public header"
            if package not in told.get("pkgs", []):
                return f"{include}: crate.mk does not name {package} in pkgs"
    for pattern, place in FOR_TESTS.items():
        if re.match(pattern, include) and part != place:
            return f"{include}: belongs in {place}/"
    return ""


def main() -> None:
    root = Path(sys.argv[1])
    owners: dict[str, str] = {}
    for name in listed(root):
        match = re.match(r"(lib|tools|tests)/([^/]+)/((?:(include|src|tests|bench)/)?.*)", name)
        if not match:
            continue
        top, crate, rest, part = match.groups()
        part = "tests" if top == "tests" else part or ""
        told = manifest(root / top / crate / "crate.mk")
        if rest == "crate.mk":
            for package in told.get("pkgs", []):
                if owners.setdefault(package, name) != name and package in PACKAGES.values():
                    print(f"{name}:1: package {package} belongs to {owners[package]} alone")
        elif re.search(r"\.(cc|h|cu|cuh)$", name):
            text = (root / name).read_text(encoding="utf-8")
            for found in INCLUDE.finditer(text):
                message = complaint(found.group(1), crate, part, told)
                if message:
                    print(f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {message}")


main()
