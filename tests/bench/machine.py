"""The conditions of a measurement: processor, threads, memory, versions, load."""

import json
import os
import re
import statistics
import subprocess
from collections.abc import Iterable
from pathlib import Path


def summary(values: Iterable[float]) -> dict:
    """Median, minimum and maximum."""
    x = sorted(values)
    return {"median": statistics.median(x), "min": x[0], "max": x[-1]}


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def threads() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def facts() -> dict:
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    flags = re.search(r"^flags\s*:\s*(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    known = set(flags.group(1).split()) if flags else set()
    return {"cpu": cpu.group(1) if cpu else "unknown", "threads": threads(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "isa": [f for f in ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16") if f in known],
            "load_at_start": os.getloadavg()[0]}


def versions(programs: Path, peer_python: str) -> dict:
    """The commit of this project and the versions of the measured libraries."""
    found = {"commit": _output("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"),
             "fp8-step": _output(str(programs / "fp8-step"), "--version")}
    onednn = re.search(r"oneDNN ([\d.]+)", found["fp8-step"])
    found["onednn"] = onednn.group(1) if onednn else "unknown"
    if peer_python:
        ask = ("import importlib.util as u, json, torch, torchao; t = u.find_spec('transformers') and __import__('transformers').__version__; "
               "print(json.dumps({'torch': torch.__version__, 'torchao': torchao.__version__} | ({'transformers': t} if t else {})))")
        found |= json.loads(_output(peer_python, "-W", "ignore", "-c", ask).splitlines()[-1])
    return found
