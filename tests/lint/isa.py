#!/usr/bin/env python3
"""Reports AVX-512 instructions outside of *.isa.cc, the sources that are compiled once per instruction set. Usage: isa.py BUILD [PROGRAM...].
Checks each function of the programs in BUILD/bin, or of those named, except those of *.isa.cc. The linker keeps one copy of an inline function, and this must
not be the copy compiled for AVX-512. Objects are not read: objdump takes six times as long for them, and what no program links does not run.
If programs are named, another program must have no function of a *.isa.cc that they lack. Programs of other architectures are skipped.
AVX-512 is identified by its encoding: in 64-bit code only EVEX prefixes begin with the byte 62; mask registers also have VEX encodings."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FUNCTION = re.compile(r"^([0-9a-f]+) <(.*)>:$")
X86_64 = 62


def is_x86(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(20)
    return head[:4] == b"\x7fELF" and head[18] == X86_64


def of_sets(program: Path) -> dict[int, str]:
    """Addresses of functions from *.isa.cc and their sources. In the symbol table, local symbols follow the name of their source file."""
    lines = subprocess.run(["readelf", "-sW", program], capture_output=True, text=True, check=True).stdout.splitlines()
    addresses, source = {}, ""
    for fields in (line.split() for line in lines):
        if len(fields) < 7 or not fields[0].endswith(":"):
            continue
        if fields[3] == "FILE":
            source = fields[7] if len(fields) > 7 else ""
        elif fields[4] == "LOCAL" and source.endswith(".isa.cc"):
            addresses[int(fields[1], 16)] = source
    return addresses


def uncovered(programs: list[Path], checked: list[Path]) -> list[str]:
    """One message per source of functions for instruction sets that some program has and none of the checked ones."""
    has = {path: set(of_sets(path).values()) for path in programs if is_x86(path)}
    known = set().union(*(has[path] for path in checked if path in has))
    return [f"{path}:1: has functions of {source}, which the checked programs lack" for path in has for source in sorted(has[path] - known)]


def findings(path: Path) -> list[str]:
    """One message per function that contains an AVX-512 instruction."""
    if not is_x86(path):
        return []
    allowed = of_sets(path)
    disassembly = subprocess.Popen(["objdump", "-dw", path], stdout=subprocess.PIPE, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    # grep keeps the function headings and the candidate instructions: Python would be too slow for the whole disassembly.
    lines = subprocess.run(["grep", "-E", r">:$|:\s((26|2e|36|3e|64|65|67) )*62 |%k[0-7]"], stdin=disassembly.stdout, capture_output=True,
                           text=True, check=False)
    if disassembly.wait() != 0:
        return [f"{path}:1: objdump could not read it"]
    found, function, address = {}, "", -1
    for line in lines.stdout.splitlines():
        heading = FUNCTION.match(line)
        if heading:
            address, function = int(heading.group(1), 16), heading.group(2)
        elif address not in allowed:
            found.setdefault(function, line.split("\t")[-1].strip())
    names = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True, check=True).stdout.split("\n")
    return [f"{path}:1: {name}: {instruction} is AVX-512, outside of *.isa.cc" for name, instruction in zip(names, found.values())]


def main() -> None:
    build = Path(sys.argv[1])
    programs = [path for path in sorted((build / "bin").glob("*")) if path.is_file()]
    if not programs:
        sys.exit(f"isa.py: {build}/bin: contains no programs")
    named = [build / "bin" / name for name in sys.argv[2:]]
    with ThreadPoolExecutor() as pool:
        for lines in [*pool.map(findings, named or programs), uncovered(programs, named) if named else []]:
            for line in lines:
                print(line)


if __name__ == "__main__":
    main()
