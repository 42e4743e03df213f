#!/usr/bin/env python3
"""Runs every example of every manual page and compares the output with the page. An example is a literal block with lines
`$ command`, in any section. Each page gets a new folder with text.txt (the head of share/text), tokenizer.json (of
share/tokenizers/shakespeare), llama3/ (a Hugging Face folder), base/ (the same with a tokenizer) and conversations.jsonl, both of
examples/3-fine-tune, and the files of tests/man/fixtures. On a page, a line `...` matches any
number of lines, and `...` at the end of a line matches the rest of the line. Lines of progress, which a slow program prints, are not
compared. A build without CUDA runs no examples with --device cuda."""

import concurrent.futures
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from mdoc import Example, Page, PageError, Tap, pages  # noqa: E402

SRC = Path(os.environ.get("SRC") or Path(__file__).resolve().parents[2]).resolve()
BIN = os.environ.get("BIN") or str(SRC / "build/bin")
LIMIT_S = 300
ENVIRONMENT = {
    "FP8_SHARE": str(SRC / "share"),
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}

Result = tuple[bool, str, list[str]]


def fill(folder: Path) -> None:
    """Creates the files that examples may use."""
    text = (SRC / "share/text/tinyshakespeare.txt").read_bytes()[:20000]
    (folder / "text.txt").write_bytes(text)
    shutil.copytree(SRC / "tests/golden/models/llama3/hf", folder / "llama3")
    shutil.copytree(SRC / "tests/golden/models/llama3/hf", folder / "base")
    shutil.copytree(SRC / "examples/3-fine-tune/tokenizer", folder / "base", dirs_exist_ok=True)
    shutil.copy(SRC / "examples/3-fine-tune/conversations.jsonl", folder)
    shutil.copy(SRC / "share/tokenizers/shakespeare/tokenizer.json", folder)
    fixtures = SRC / "tests/man/fixtures"
    if fixtures.is_dir():
        shutil.copytree(fixtures, folder, dirs_exist_ok=True)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


@functools.cache
def has_cuda() -> bool:
    """Whether the programs are built with CUDA."""
    return ", CUDA " in subprocess.run([BIN + "/fp8-step", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout


def pattern(lines: list[str]) -> str:
    """A regular expression for the output shown on a page."""
    parts = []
    for line in lines:
        if line == "...":
            parts.append(r"(?:.*\n)*")
        elif line.endswith("..."):
            parts.append(re.escape(line[:-3]) + r".*\n")
        else:
            parts.append(re.escape(line) + r"\n")
    return "".join(parts)


def run(example: Example, folder: Path) -> tuple[bool, list[str]]:
    environment = os.environ | ENVIRONMENT | {"PATH": BIN + ":" + os.environ["PATH"], "TMPDIR": str(folder.parent)}
    try:
        done = subprocess.run(
            ["sh", "-c", example.command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False,
        )
    except subprocess.TimeoutExpired:
        return False, [f"still running after {LIMIT_S} s"]
    printed = done.stdout.decode(errors="replace")
    if printed and not printed.endswith("\n"):
        printed += "\n"
    printed = re.sub(r"^fp8-.*  ETA .*\n", "", printed, flags=re.M)
    good = re.fullmatch(pattern(example.output), printed) is not None
    return good, [f"printed (status {done.returncode}):", printed.rstrip("\n"), "expected:", *example.output]


def results(page: Page) -> list[Result]:
    """One result for each example of a page."""
    try:
        examples = page.examples()
    except PageError as error:
        return [(False, f"{page.name}: the page can be parsed", [str(error)])]
    if not examples:
        return [(page.section != "1", f"{page.name}: the page has an example", ["a manual page in section 1 needs an example"])]
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "example"
        folder.mkdir()
        fill(folder)
        for example in examples:
            if "--device cuda" in example.command and not has_cuda():
                continue
            good, notes = run(example, folder)
            found.append((good, f"{page.name}:{example.number}: {example.command}".replace("\n", " "), notes))
    return found


def main() -> None:
    tap = Tap()
    wanted = pages(SRC)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for found in pool.map(results, wanted):
            for good, name, notes in found:
                tap.result(good, name, *notes)
    tap.result(bool(wanted), "there are manual pages")
    tap.done()


main()
