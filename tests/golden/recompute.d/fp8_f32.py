"""fp8-f32/: FP8 linears of each recipe in a float32 model: loss, gradients and their norm for the first batch, and ten steps."""

import json

import torch
from reference import GOLDEN, File, compare_datasets, finish, relative, within
from training import Settings, float8, load, train

FOLDER = GOLDEN / "fp8-f32"
RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")


def rule(name: str):
    """Bounds of the README for the first step."""
    if name == "loss":
        return within(1e-5)
    return within(5e-5 if name == "grad_norm" else 1e-3, relative)


def compare(model: str, recipe: str) -> None:
    stored = [json.loads(line) for line in (FOLDER / f"{model}-{recipe}.jsonl").read_text(encoding="utf-8").splitlines()]
    settings = Settings(stored[0]["steps"], stored[0]["warmup"])
    first: dict[str, torch.Tensor] = {}
    losses: list[float] = []
    norms: list[float] = []

    def record(step: int, loss: torch.Tensor, norm: torch.Tensor, gradients: dict[str, torch.Tensor]) -> None:
        losses.append(float(loss))
        norms.append(float(norm))
        if step == 0:
            first.update({f"grad/{name}": value for name, value in gradients.items()})
            first["loss"] = loss.double()
            first["grad_norm"] = norm.double()

    train(float8(load(model), recipe), settings, record)
    compare_datasets(FOLDER / f"{model}-{recipe}.h5", first, lambda name: False, rule)
    report = File(FOLDER / f"{model}-{recipe}.jsonl")
    for step, (told, loss, norm) in enumerate(zip(stored[1:], losses, norms, strict=True)):
        report.number(f"loss of step {step}", told["loss"], loss, 1e-5 if step == 0 else 8e-3)
        report.number(f"grad_norm of step {step}", told["grad_norm"], norm, (5e-5 if step == 0 else 3e-2) * norm)
        report.number(f"lr of step {step}", told["lr"], settings.rate(step), 1e-15)
    report.done()


def main() -> None:
    for model in ("llama3", "qwen3"):
        for recipe in RECIPES:
            compare(model, recipe)
    finish()


main()
