"""curves/: 100 steps in float32, in bf16 and with each recipe; the final float32 weights; the figures of summary.json that follow from
the stored curves. Its figures of other runs (float64, fused, accumulated) are not recomputed."""

import json
from pathlib import Path

import torch
from reference import GOLDEN, File, finish, relative, within
from safetensors.torch import load_file
from training import Settings, float8, load, train

FOLDER = GOLDEN / "curves"
RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
# Bounds of the README: loss at each step, mean over all steps, mean of grad_norm relative.
BOUNDS = {"fp32": (1e-5, 2e-6, 2e-6), "bf16": (8e-3, 1.5e-3, 3e-3)} | {recipe: (3e-2, 5e-3, 2e-2) for recipe in RECIPES}


def read(path: Path) -> tuple[dict, list[dict]]:
    """The settings and the steps of a stored curve."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return records[0], records[1:]


def column(records: list[dict], name: str) -> torch.Tensor:
    return torch.tensor([record[name] for record in records], dtype=torch.float64)


def mean(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().mean())


def mean_relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(((a - b).abs() / a.abs()).mean())


def run(precision: str, stored: dict) -> tuple[list[dict], dict[str, torch.Tensor]]:
    """The records of a run and its final weights."""
    model = load("llama3", torch.float32 if precision == "fp32" else torch.bfloat16)
    model = float8(model, precision) if precision in RECIPES else model
    settings = Settings(stored["steps"], stored["warmup"], stored["lr"], stored["min_lr"], stored["weight_decay"])
    records: list[dict] = []

    def record(step: int, loss: torch.Tensor, norm: torch.Tensor, _: dict[str, torch.Tensor]) -> None:
        tokens = (step + 1) * stored["global_batch"] * stored["seq_length"]
        records.append({"step": step, "tokens": tokens, "loss": float(loss), "grad_norm": float(norm), "lr": settings.rate(step)})

    return records, train(model, settings, record)


def curve(precision: str) -> list[dict]:
    """Compares one curve; returns the stored one."""
    path = FOLDER / f"llama3-{precision}.jsonl"
    stored, steps = read(path)
    records, weights = run(precision, stored)
    report = File(path)
    each, average, norm = BOUNDS[precision]
    for name in ("step", "tokens"):
        report.compare(name, column(steps, name), column(records, name))
    report.compare("lr", column(steps, "lr"), column(records, "lr"), within(1e-15))
    report.compare("loss", column(steps, "loss"), column(records, "loss"), within(each))
    report.compare("mean loss", column(steps, "loss"), column(records, "loss"), within(average, mean))
    report.compare("grad_norm", column(steps, "grad_norm"), column(records, "grad_norm"), within(norm, mean_relative))
    report.done()
    if precision == "fp32":
        final_weights(weights)
    return steps


def final_weights(weights: dict[str, torch.Tensor]) -> None:
    path = FOLDER / "llama3-fp32-final.safetensors"
    stored = load_file(path)
    report = File(path)
    report.missing(sorted(set(stored) ^ set(weights)))
    for name in sorted(set(stored) & set(weights)):
        report.compare(name, stored[name], weights[name], within(1e-5, relative))
    report.done()


def distances(a: list[dict], b: list[dict]) -> dict[str, float]:
    """The distance of curve b from curve a, with the keys of summary.json."""
    loss = column(b, "loss") - column(a, "loss")
    norm = ((column(b, "grad_norm") - column(a, "grad_norm")) / column(a, "grad_norm")).abs()
    return {"loss_max": float(loss.abs().max()), "loss_mean": float(loss.abs().mean()),
            "loss_mean_last50": float(loss[-50:].abs().mean()), "loss_signed_mean_last50": float(loss[-50:].mean()),
            "grad_norm_rel_max": float(norm.max()), "grad_norm_rel_mean": float(norm.mean()),
            "grad_norm_rel_at_step_0": float(norm[0])}


def summary(curves: dict[str, list[dict]]) -> None:
    path = FOLDER / "summary.json"
    report = File(path)
    for precision, told in json.loads(path.read_text(encoding="utf-8"))["llama3"].items():
        if precision not in curves:
            continue
        steps = curves[precision]
        report.number(f"{precision} first_loss", told["first_loss"], steps[0]["loss"], 0)
        report.number(f"{precision} last_loss", told["last_loss"], steps[-1]["loss"], 0)
        report.number(f"{precision} clipped_steps", told["clipped_steps"], sum(step["grad_norm"] > 1 for step in steps), 0)
        for other in ("fp32", "bf16"):
            for name, value in distances(curves[other], steps).items() if f"from_{other}" in told else ():
                stored = told[f"from_{other}"][name]
                report.number(f"{precision} from_{other} {name}", stored, value, 6e-3 * abs(stored))  # three digits are stored
    report.done()


def main() -> None:
    summary({precision: curve(precision) for precision in BOUNDS})
    finish()


main()
