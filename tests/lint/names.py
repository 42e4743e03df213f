#!/usr/bin/env python3
"""Reports names that a source gives in an anonymous namespace and another source gives there too, or a header of the folder. Usage: names.py ROOT.
Sources of a folder are compiled together (UNITY in the Makefile), where equal names are one name: the compiler refuses two definitions, but two
functions with different parameters become overloads, and the name of one source hides that of an outer namespace from the others: a call can mean the
function of another source. Sources that are compiled alone are skipped, and aliases that are the same in both sources are allowed."""

import re
import sys
from collections import defaultdict
from pathlib import Path

from files import listed

BEGIN, END = re.compile(r"namespace \{"), re.compile(r"\}  // namespace$")
TYPE = re.compile(r"(?:template <.*> )?(?:struct|class|enum class|enum|union) (\w+)")
ALIAS = re.compile(r"(?:using (\w+) = .*|namespace (\w+) = .*);")
SHIM = '"cuda_shim.h"'
FUNCTION_OR_VALUE = re.compile(r"\w[\w:<>,*& ]*[\w>*&] ?\b(\w+)(?:\[[^\]]*\])?\s*(?:=|\(|\{|;)")


def given(path: Path) -> list[tuple[str, int, str]]:
    """Each name that begins a line in an anonymous namespace, or anywhere in a header, with its line number and, of an alias, its text."""
    found, header = [], path.suffix != ".cc"
    inside = header
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        inside = header or (inside or bool(BEGIN.match(line))) and not END.match(line)
        line = re.sub(r"\[\[.*?\]\] ?", "", line)
        if line.startswith("using namespace ") or (not inside and not line.startswith("static ")):
            continue
        if match := ALIAS.match(line):
            found.append((match.group(1) or match.group(2), number, line))
        elif match := TYPE.match(line) or FUNCTION_OR_VALUE.match(line):
            found.append((match.group(1), number, ""))
    return found


def alone(folder: Path) -> re.Pattern:
    """The names, without suffix, of the sources of a crate, a tool or a folder of tests that are compiled alone: see `single` in the Makefile."""
    patterns = [r".*\.isa", r".*_(nocuda|bench|mpi_test|on_host)"]
    patterns += [r"(?!.*_test).*"] if folder.parent.name == "tests" and folder.name != "fuzz" else []
    text = (folder / "crate.mk").read_text(encoding="utf-8")
    for name, prefix in (("alone", ""), ("hot", "src/")):
        for line in re.findall(rf"^{name}\s*:=(.*)$", text, re.M):
            patterns += [re.escape(prefix + word).replace("%", ".*") for word in line.split()]
    return re.compile("|".join(patterns))


def findings(root: Path) -> list[str]:
    """A message for each name of one source that a header or an earlier source of its folder gives too."""
    seen, messages = defaultdict(dict), []
    for path in [Path(name) for name in listed(root) if name.endswith((".h", ".cuh"))]:
        for name, _, text in given(root / path):
            seen[path.parent].setdefault(name, (path, text))
    for path in [Path(name) for name in listed(root) if name.endswith(".cc")]:
        match = re.match(r"((?:lib|tools|tests)/[\w-]+)/(?:(src|tests)/)?[^/]*$", str(path))
        if not match or not (root / match.group(1) / "crate.mk").exists():
            continue
        folder = root / match.group(1)
        if alone(folder).fullmatch(str(path.relative_to(match.group(1)).with_suffix(""))) or SHIM in (root / path).read_text(encoding="utf-8"):
            continue
        for name, number, text in given(root / path):
            first = seen[path.parent].setdefault(name, (path, text))
            if first[0] != path and not (text and text == first[1]):
                messages.append(f"{path}:{number}: {name} is also in {first[0]}")
    return messages


if __name__ == "__main__":
    for message in findings(Path(sys.argv[1])):
        print(message)
