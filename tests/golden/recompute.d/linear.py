"""casts/linear.h5: one linear layer, forward and backward, exact, in bf16, and with torchao's float8 linear in float32."""

import math

import h5py
import torch
from reference import GOLDEN, File, Rule, finish, relative, tensor, within
from training import float8

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
Results = dict[str, torch.Tensor]


def products(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor) -> Results:
    """The three matrix products of an unquantized layer, in the type of its operands."""
    return {"y": x @ w.T, "dx": dy @ w, "dw": dy.T @ x}


def quantized(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, recipe: str) -> Results:
    """The same with torchao, on float32 copies."""
    layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    layer.weight = torch.nn.Parameter(w.float().clone())
    layer = float8(torch.nn.Sequential(layer), recipe)
    leaf = x.float().clone().requires_grad_()
    y = layer(leaf)
    y.backward(dy.float())
    return {"y": y.detach(), "dx": leaf.grad, "dw": layer[0].weight.grad}


def both(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """L2 and largest difference, each relative to the stored values: 1e-6."""
    return max(relative(a, b), float((a - b).abs().max() / a.abs().max())), 1e-6


def of_bf16(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """The largest error as a share of its bound, 2^-7 of the element plus 1e-6 of the largest element."""
    a, b = a.double(), b.double()
    return float(((a - b).abs() / (2.0**-7 * a.abs() + 1e-6 * a.abs().max())).max()), 1.0


def sqnr(exact: torch.Tensor, value: torch.Tensor) -> float:
    return 20 * math.log10(1 / relative(exact, value))


def attributes(report: File, what: str, dataset: h5py.Dataset, exact: torch.Tensor, value: torch.Tensor) -> None:
    """Compares the SQNR attributes within 0.1 dB. Values above 100 dB are float32 rounding noise and are not compared."""
    told = dataset.attrs
    if told["sqnr_db"] < 100:
        report.number(f"{what} sqnr_db", told["sqnr_db"], sqnr(exact, value), 0.1)
    if "sqnr_db_as_bf16" in told:
        report.number(f"{what} sqnr_db_as_bf16", told["sqnr_db_as_bf16"], sqnr(exact, value.bfloat16()), 0.1)
        most = float(value.abs().max())
        report.number(f"{what} largest_magnitude", told["largest_magnitude"], most, 1e-6 * most)


def main() -> None:
    path = GOLDEN / "casts/linear.h5"
    report = File(path)
    with h5py.File(path) as file:
        for case, group in file.items():
            operands = [tensor(group[name]) for name in ("x", "w", "dy")]
            exact = products(*(value.double() for value in operands))
            found: dict[str, tuple[Results, Rule]] = {
                "float64": (exact, within(1e-14, relative)), "bf16": (products(*operands), of_bf16)}
            found |= {recipe: (quantized(*operands, recipe), both) for recipe in RECIPES}
            for part, (results, rule) in found.items():
                for name, value in results.items():
                    stored = group[part][name]
                    report.compare(f"{case}/{part}/{name}", tensor(stored), value.contiguous(), rule)
                    if part != "float64":
                        attributes(report, f"{case}/{part}/{name}", stored, exact[name], value)
    report.done()
    finish()


main()
