#!/usr/bin/env python3
"""Asks a model of a Hugging Face folder questions, with transformers: ask.py FOLDER QUESTION... prints an answer a line, the most probable one."""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging


def main() -> None:
    logging.disable_progress_bar()
    folder, questions = sys.argv[1], sys.argv[2:]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for question in questions:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        ids = model.generate(**prompt, max_new_tokens=40, do_sample=False)[0, prompt["input_ids"].shape[1]:]
        print(tokenizer.decode(ids, skip_special_tokens=True).strip())


main()
