"""Common code of the scripts: reads stored values as tensors, compares them, and prints a line per file."""

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import h5py
import numpy as np
import torch

GOLDEN = Path(__file__).resolve().parents[1]
TEXT = GOLDEN.parents[1] / "share/text/tinyshakespeare.txt"
TORCH_TYPES = {
    "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64, "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2, "float8_e8m0fnu": torch.float8_e8m0fnu,
}
# Called with (stored, computed) whose bits differ; returns a distance and its bound.
Rule = Callable[[torch.Tensor, torch.Tensor], tuple[float, float]]

logging.disable(logging.WARNING)  # torchao and transformers log at import
torch.set_num_threads(1)


def tensor(dataset: h5py.Dataset) -> torch.Tensor:
    """A dataset as a tensor of the type in its attribute; codes and bit patterns are reinterpreted."""
    values = torch.from_numpy(np.ascontiguousarray(dataset[()]).reshape(dataset.shape))
    name = dataset.attrs.get("dtype", b"")
    wanted = TORCH_TYPES.get(name.decode() if isinstance(name, bytes) else name, values.dtype)
    return values if values.dtype == wanted else values.view(wanted)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> int:
    """Number of elements with different bits; all NaNs are equal, -0 differs from 0."""
    a, b = a.contiguous(), b.contiguous()
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    differs = a.view(integer) != b.view(integer)
    if a.dtype.is_floating_point:
        differs &= ~(a.to(torch.float64).isnan() & b.to(torch.float64).isnan())
    return int(differs.sum())


def largest(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """Distance of b from a, relative to a, as L2 norms."""
    norm = float(a.double().norm())
    return float((a.double() - b.double()).norm()) / norm if norm else largest(a, b)


def within(bound: float, distance: Callable[[torch.Tensor, torch.Tensor], float] = largest) -> Rule:
    """A rule with one bound."""
    return lambda a, b: (distance(a, b), bound)


class File:
    """Collects the results for one file and prints them in a line."""

    differing = 0

    def __init__(self, path: Path):
        self.name = str(path.relative_to(GOLDEN))
        self.values = 0
        self.worst = (0.0, 0.0, "")  # share of its bound, distance, what
        self.wrong: list[str] = []

    def compare(self, what: str, stored: torch.Tensor, computed: torch.Tensor, rule: Rule | None = None) -> None:
        """Compares bit for bit, or by `rule` if the bits differ."""
        self.values += 1
        if stored.shape != computed.shape or stored.dtype != computed.dtype:
            self.wrong.append(f"{what}: {tuple(stored.shape)} {stored.dtype} computed as {tuple(computed.shape)} {computed.dtype}")
            return
        count = same_bits(stored, computed)
        if count == 0:
            return
        if rule is None:
            self.wrong.append(f"{count} of {stored.numel()} elements of {what}")
            return
        distance, bound = rule(stored, computed)
        if not distance <= bound:
            self.wrong.append(f"{distance:.2g} in {what}, allowed {bound:.2g}")
        elif distance / bound >= self.worst[0]:
            self.worst = (distance / bound, distance, what)

    def number(self, what: str, stored: float, computed: float, bound: float) -> None:
        self.compare(what, torch.tensor(stored, dtype=torch.float64), torch.tensor(computed, dtype=torch.float64), within(bound))

    def missing(self, names: Iterable[str]) -> None:
        self.wrong += [f"{name}, which nothing computes" for name in names]

    def done(self) -> None:
        """Prints the line."""
        if self.wrong:
            File.differing += 1
            more = f" and {len(self.wrong) - 3} more" if len(self.wrong) > 3 else ""
            print(f"{self.name}: differs by {'; '.join(self.wrong[:3])}{more}", flush=True)
        elif self.worst[2]:
            print(f"{self.name}: equal within the bounds ({self.values} values; {self.worst[1]:.2g} in {self.worst[2]})", flush=True)
        else:
            print(f"{self.name}: equal ({self.values} values)", flush=True)


def compare_datasets(path: Path, computed: dict[str, torch.Tensor], inputs: Callable[[str], bool],
                     rule: Callable[[str], Rule | None] = lambda name: None) -> None:
    """Compares all datasets of an HDF5 file except inputs; a dataset that was not computed is a difference."""
    report = File(path)
    with h5py.File(path) as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        wanted = [name for name in names if not inputs(name)]
        report.missing(sorted(set(wanted) - set(computed)) + sorted(set(computed) - set(wanted)))
        for name in wanted:
            if name in computed:
                report.compare(name, tensor(file[name]), computed[name], rule(name))
    report.done()


def finish() -> None:
    """Exits with status 1 if a file differs."""
    sys.exit(1 if File.differing else 0)
