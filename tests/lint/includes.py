#!/usr/bin/env python3
"""Reports includes of crates and packages that crate.mk does not list. Usage: includes.py ROOT. The compiler finds most of them, but not
those of an indirect dependency, nor those of a package, since Debian installs all headers in /usr/include.
  - fp8/<crate>/ may be included only if crate.mk lists the crate in `deps`.
  - One crate lists a package in `pkgs`; only its sources may include headers of the package, its public headers may not. Folders in tests may
    list packages for which they have a stand-in."""

import re
import sys
from pathlib import Path

from files import listed

# A regular expression for the beginning of the include path, and its package.
PACKAGES = {
    r"hdf5(_hl)?\.h|H5\w+\.h": "hdf5", r"mpi\.h": "mpi", r"(oneapi/)?dnnl": "dnnl", r"nlohmann/": "nlohmann",
    r"cxxopts\.hpp": "cxxopts", r"xxhash\.h|xxh3\.h": "xxhash", r"pcre2": "pcre2", r"utf8proc\.h": "utf8proc",
    r"yaml-cpp/": "yaml", r"toml\+\+/": "tomlplusplus", r"nccl\.h": "nccl", r"cudnn": "cudnn",
    r"cublasLt\.h": "cublaslt",
}
FOR_TESTS = {r"gtest/|gmock/": "tests", r"benchmark/": "bench"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)


def manifest(path: Path) -> dict[str, list[str]]:
    """The words assigned to each variable of a crate.mk."""
    found: dict[str, list[str]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").replace("\\\n", " ").split("\n"):
            match = re.match(r"(\w+)\s*:?=\s*(.*)", line)
            if match:
                found[match.group(1)] = match.group(2).split()
    return found


def complaint(include: str, crate: str, part: str, manifest_names: dict[str, list[str]]) -> str:
    """The message for an include that `crate` may not use in its folder `part`; empty if it may."""
    deps = manifest_names.get("deps", [])
    match = re.match(r"fp8/([a-z0-9_]+)/", include)
    if match and match.group(1) != crate and match.group(1) not in deps and "$(seen)" not in deps:
        return f"{include}: crate.mk does not name {match.group(1)} in deps"
    for pattern, package in PACKAGES.items():
        if re.match(pattern, include):
            if part == "include":
                return f"{include}: package {package} in a public header"
            if package not in manifest_names.get("pkgs", []):
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
        manifest_names = manifest(root / top / crate / "crate.mk")
        if rest == "crate.mk" and top != "tests":
            for package in manifest_names.get("pkgs", []):
                if owners.setdefault(package, name) != name and package in PACKAGES.values():
                    print(f"{name}:1: package {package} belongs to {owners[package]} alone")
        elif re.search(r"\.(cc|h|cu|cuh)$", name):
            text = (root / name).read_text(encoding="utf-8")
            for found in INCLUDE.finditer(text):
                message = complaint(found.group(1), crate, part, manifest_names)
                if message:
                    print(f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {message}")


main()
