"""Training as defined in curves/README.md: data order, loss, AdamW, clipping, schedule, and torchao's float8 linears. Used by curves.py,
fp8_f32.py and linear.py."""

import dataclasses
import math
from collections.abc import Callable, Iterator

import torch
from reference import GOLDEN, TEXT
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()
SEQ_LENGTH, BATCH = 64, 8


@dataclasses.dataclass
class Settings:
    """The settings that differ between runs."""

    steps: int
    warmup: int
    lr: float = 1e-3
    min_lr: float = 1e-4
    weight_decay: float = 0.1

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        progress = (step - self.warmup) / (self.steps - self.warmup)
        return self.min_lr + 0.5 * (self.lr - self.min_lr) * (1 + math.cos(math.pi * progress))


def load(name: str, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """A model of models/ with eager attention and the stored weights in `dtype`."""
    folder = GOLDEN / "models" / name / "hf"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").train()


def float8(module: torch.nn.Module, recipe: str) -> torch.nn.Module:
    """Replaces every linear except lm_head by torchao's emulated Float8Linear."""
    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    return convert_to_float8_training(module, config=config, module_filter_fn=lambda _, name: name != "lm_head")


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields inputs and targets [BATCH, SEQ_LENGTH] of each step in sequential order; tokens are bytes."""
    tokens = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
    samples = (len(tokens) - 1) // SEQ_LENGTH
    first = 0
    while True:
        starts = [(first + i) % samples * SEQ_LENGTH for i in range(BATCH)]
        yield (torch.stack([tokens[s : s + SEQ_LENGTH] for s in starts]),
               torch.stack([tokens[s + 1 : s + SEQ_LENGTH + 1] for s in starts]))
        first += BATCH


def loss_of(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over all targets, in float32."""
    logits = model(input_ids=inputs, use_cache=False).logits.float()
    losses = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none")
    return losses.mean()


def train(model: torch.nn.Module, settings: Settings,
          before_update: Callable[[int, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]], None]) -> dict[str, torch.Tensor]:
    """Runs all steps and returns the float32 master weights. The model's own weights may be bf16. before_update is called with the
    step, its loss, its gradients as float32 and their norm, both before clipping."""
    copies = dict(model.named_parameters())
    masters = {name: p.detach().float().clone() for name, p in copies.items()}
    matrices = [p for p in masters.values() if p.dim() >= 2]
    vectors = [p for p in masters.values() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.95), eps=1e-8)
    for step, (inputs, targets) in zip(range(settings.steps), batches()):
        with torch.no_grad():
            for name, copy in copies.items():
                copy.copy_(masters[name])
                copy.grad = None
        loss = loss_of(model, inputs, targets)
        loss.backward()
        for name, copy in copies.items():
            masters[name].grad = copy.grad.float()
        gradients = {name: master.grad.clone() for name, master in masters.items()}
        norm = torch.nn.utils.clip_grad_norm_(masters.values(), 1.0)
        before_update(step, loss.detach(), norm, gradients)
        for group in optimizer.param_groups:
            group["lr"] = settings.rate(step)
        optimizer.step()
    return masters
