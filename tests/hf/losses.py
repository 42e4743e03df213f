#!/usr/bin/env python3
"""losses.py DATA FOLDER...: prints for each model folder, a JSON line each, what the transformers of this environment computes: the losses of the tokens
of a file of 16-bit ids in float32, and what is amiss with the names of tensors. exports.t imports the functions, and runs the program on an older release."""

import array
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, __version__
from transformers.utils import logging

LENGTH, SEQUENCES = 32, 4


def load(folder: str, **settings) -> tuple[torch.nn.Module, dict]:
    """A model, and the tensors that its folder lacks or has too many."""
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **settings)
    return model.eval(), {key: list(value) for key, value in info.items() if value}


def losses(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Losses of tokens, [SEQUENCES, LENGTH]."""
    with torch.no_grad():
        logits = model(tokens[:-1].view(SEQUENCES, LENGTH)).logits.double()
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[1:].view(SEQUENCES, LENGTH), reduction="none")


def main(data: str, *folders: str) -> None:
    logging.set_verbosity_error()
    tokens = torch.tensor(array.array("H", Path(data).read_bytes()))
    for folder in folders:
        model, amiss = load(folder)
        print(json.dumps({"version": __version__, "folder": folder, "amiss": amiss, "losses": losses(model, tokens).tolist()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
