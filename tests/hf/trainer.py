#!/usr/bin/env python3
"""trainer.py YAML FOLDER CONVERSATIONS ADAPTERS TRAINED: trains the model of a Hugging Face folder in float32 with the Trainer of the transformers of this
environment, as LLaMA-Factory does with the same keys, but with the records in their order. CONVERSATIONS has a line {"ids", "trained"} each, as fp8-tokenize
--json prints it. Prints a JSON line for each step: the loss before the update, averaged over the targets of the step, the gradient norm before clipping, and
the rate. ADAPTERS is a folder for new adapters, TRAINED one for what is trained. Settings that the file lacks are the Trainer's defaults."""

import json
import sys
from pathlib import Path

import torch
import yaml
from peft import LoraConfig, get_peft_model
from torch.utils.data import SequentialSampler
from transformers import AutoModelForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments, __version__, set_seed
from transformers.utils import logging

KEYS = ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay",
        "max_grad_norm", "max_steps", "output_dir")
IGNORED = -100


def records(path: str) -> list[dict[str, list[int]]]:
    """Ids and labels of each conversation."""
    out = []
    for line in map(json.loads, Path(path).read_text().splitlines()):
        labels = [IGNORED] * len(line["ids"])
        for begin, end in line["trained"]:
            labels[begin:end] = line["ids"][begin:end]
        out.append({"input_ids": line["ids"], "labels": labels})
    return out


def collate(batch: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Pads at the right."""
    length = max(len(record["input_ids"]) for record in batch)

    def padded(values: list[list[int]], padding: int) -> torch.Tensor:
        return torch.tensor([v + [padding] * (length - len(v)) for v in values])

    return {"input_ids": padded([r["input_ids"] for r in batch], 0), "labels": padded([r["labels"] for r in batch], IGNORED),
            "attention_mask": padded([[1] * len(r["input_ids"]) for r in batch], 0)}


class Recorder(TrainerCallback):
    """Prints the records of steps."""

    def __init__(self) -> None:
        self.loss = self.rate = 0.0

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs) -> None:
        self.rate = optimizer.param_groups[0]["lr"]

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        if "grad_norm" not in logs:  # the summary at the end
            return
        print(json.dumps({"version": __version__, "step": state.global_step, "loss": self.loss, "grad_norm": logs["grad_norm"], "lr": self.rate}))
        self.loss = 0.0


class InOrder(Trainer):
    """A Trainer that reads the records in their order, and keeps the loss of a step, which logs of some versions round."""

    recorder: Recorder

    def _get_train_sampler(self, train_dataset=None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)

    def training_step(self, *args, **kwargs) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)
        self.recorder.loss += loss.item()
        return loss


def main(settings: str, folder: str, conversations: str, adapters: str, trained: str) -> None:
    logging.set_verbosity_error()
    keys = yaml.safe_load(Path(settings).read_text())
    set_seed(42)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if keys["finetuning_type"] == "lora":
        model = get_peft_model(model, LoraConfig(r=keys["lora_rank"], lora_alpha=keys["lora_alpha"], target_modules="all-linear", task_type="CAUSAL_LM"))
        model.save_pretrained(adapters)
    arguments = TrainingArguments(**{key: keys[key] for key in KEYS}, logging_steps=1, logging_nan_inf_filter=False, report_to="none", save_strategy="no",
                                  remove_unused_columns=False, use_cpu=True, disable_tqdm=True)
    trainer = InOrder(model=model, args=arguments, train_dataset=records(conversations), data_collator=collate)
    trainer.remove_callback(PrinterCallback)
    trainer.recorder = Recorder()
    trainer.add_callback(trainer.recorder)
    trainer.train()
    model.save_pretrained(trained)


if __name__ == "__main__":
    main(*sys.argv[1:])
