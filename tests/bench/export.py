"""fp8-export: bytes per second relative to cp of the bytes that it writes in bf16, both with one fsync, from the page cache. Both run in each round."""

import shutil
import subprocess
import time
from pathlib import Path

from machine import summary

FORMATS = ("bf16", "fp8", "compressed-tensors")
PRESET = "llama3.2-1b"


def seconds(command: list[str | Path], folder: Path) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {command[0]}: {done.stderr.strip()[-300:]}")
    return time.perf_counter() - began


def read_once(path: Path) -> None:
    """Puts a file into the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def measure(folder: Path, programs: Path, quick: bool, rounds: int) -> list[dict]:
    """Exports a model of 1.2 G parameters, 2.5 GB in bf16, in every format, and copies its file, in every round."""
    place = folder / "export"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    seconds([programs / "fp8-init", "tiny" if quick else PRESET, "--dtype", "bf16", "-q", "-o", "model.h5"], place)
    seconds([programs / "fp8-export", "model.h5", "-q", "-o", "source"], place)
    source, model = place / "source/model.safetensors", place / "model.h5"
    size = source.stat().st_size
    copies: list[float] = []
    exports: dict[str, list[float]] = {form: [] for form in FORMATS}
    for _ in range(rounds):
        read_once(source)
        copies.append(seconds(["sh", "-c", "cp source/model.safetensors copy && sync copy"], place))
        (place / "copy").unlink()
        for form, found in exports.items():
            read_once(model)
            found.append(seconds([programs / "fp8-export", "model.h5", "-q", "--any-server", "--format", form, "-o", "out"], place))
            shutil.rmtree(place / "out")
    shutil.rmtree(place)
    return [{"name": f"export {form}", "bytes": size, "seconds": summary(found), "bytes_per_s": summary(size / s for s in found),
             "of_cp": summary(c / s for c, s in zip(copies, found)), "cp_bytes_per_s": summary(size / c for c in copies)} for form, found in exports.items()]
