#!/usr/bin/env python3
"""Tokenizer, chat template and end tokens of exported folders, read by transformers: AutoTokenizer gives the ids of fp8-tokenize, the template those
of the conversations, and generation stops at the token that ends a turn."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer, GenerationConfig

sys.dont_write_bytecode = True
SRC = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SRC / "tests/man"))
from mdoc import Tap  # noqa: E402

EXAMPLE = SRC / "examples/3-fine-tune"
BIN = os.environ.get("BIN") or str(SRC / "build/bin")
ENVIRONMENT = os.environ | {"PATH": BIN + ":" + os.environ["PATH"], "FP8_SHARE": str(SRC / "share")}
tap = Tap()


def run(*command: str, text: str = "") -> str:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, input=text)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def exported(name: str, vocabulary: int, files: list[Path], end: int, *flags: str) -> str:
    """A folder after convert and export: a new model, with these texts of a tokenizer and with the end token `end`."""
    run("fp8-init", "tiny", "--set", f"vocab_size={vocabulary}", "-q", "-o", f"{name}.h5")
    run("fp8-export", f"{name}.h5", "-q", "-o", f"{name}-base")
    for file in files:
        (Path(f"{name}-base") / file.name).write_bytes(file.read_bytes())
    (Path(f"{name}-base") / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    run("fp8-convert", f"{name}-base", "-q", "-o", f"{name}-source.h5")
    run("fp8-export", f"{name}-source.h5", "-q", "-o", f"{name}-tuned", *flags)
    return f"{name}-tuned"


def check_ids(folder: str, lines: list[str]) -> None:
    """The ids of texts."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    printed = run("fp8-tokenize", "--tokenizer", folder, "--encode", text="".join(json.dumps({"text": line}) + "\n" for line in lines))
    own = [json.loads(line)["ids"] for line in printed.splitlines()]
    other = [line for line, ids in zip(lines, own, strict=True) if tokenizer(line)["input_ids"] != ids]
    tap.result(not other and len(own) == len(lines), f"{folder}: {len(lines)} texts have the same ids", str(other[:1]))


def check_conversations(folder: str) -> None:
    """The ids of whole conversations, rendered by the chat template of the folder and by --template chatml."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    records = [json.loads(line)["messages"] for line in (EXAMPLE / "conversations.jsonl").read_text().splitlines()]
    records.append([{"role": "system", "content": "Be brief."}, *records[0], *records[1]])
    Path("talks.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in records))
    printed = run("fp8-tokenize", "talks.jsonl", "--tokenizer", folder, "--template", "chatml", "--json", "-q")
    own = [json.loads(line)["ids"] for line in printed.splitlines()]
    theirs = [tokenizer.apply_chat_template(messages, return_dict=False) for messages in records]
    tap.result(own == theirs, f"{folder}: {len(records)} conversations have the same ids", f"{own[-1]} {theirs[-1]}")


def check_template_of_data(form: str) -> None:
    """The template of a token file, in the folder of a run: whole conversations, and the token that ends an answer."""
    golden = SRC / "tests/golden/chat"
    data = ("fp8-tokenize", str(golden / "data/openai.jsonl"), "--tokenizer", str(golden / form), "--template", form, "--json", "-q")
    vocabulary = json.loads(run(*data, "-o", f"{form}.h5"))["vocab_size"]
    run("fp8-init", "tiny", "--set", f"vocab_size={vocabulary}", "--tokenizer", str(golden / form), "-q", "-o", f"{form}-new.h5")
    run("fp8-step", f"{form}-new.h5", "--data", f"{form}.h5", "--out", f"{form}-run", "--steps", "1", "--batch-size", "1", "--seq-length", "64", "-q")
    run("fp8-export", f"{form}-run", "-q", "-o", f"{form}-tuned")
    tokenizer = AutoTokenizer.from_pretrained(f"{form}-tuned")
    own = [json.loads(line)["ids"] for line in run(*data).splitlines()]
    records = [json.loads(line)["messages"] for line in (golden / "data/openai.jsonl").read_text().splitlines()]
    theirs = [tokenizer.apply_chat_template(messages, return_dict=False) for messages in records]
    tap.result(own == theirs, f"{form}: the template of the data gives {len(records)} conversations the same ids", f"{own[-1]} {theirs[-1]}")
    ends = GenerationConfig.from_pretrained(f"{form}-tuned").eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    tap.result(tokenizer.eos_token_id in ends and tokenizer.eos_token_id in own[-1], f"{form}: the token that ends an answer is an end token", str(ends))


def check_adapters(wanted: int) -> None:
    """The end token of adapters, by the two ways in which programs look for it beside PEFT's own files."""
    run("fp8-tokenize", "talks.jsonl", "--tokenizer", "chat-tuned", "--template", "chatml", "-q", "-o", "talks.h5")
    run("fp8-step", "chat-source.h5", "--data", "talks.h5", "--out", "talk", "--lora-rank", "2", "--steps", "1", "--batch-size", "1", "-q")
    run("fp8-export", "talk", "--format", "peft", "--template", "chatml", "-q", "-o", "adapter")
    ends = GenerationConfig.from_pretrained("adapter").eos_token_id
    tap.result(ends == [0, wanted], "adapters: the token that ends a turn joins the end tokens of the model", str(ends))
    end = AutoTokenizer.from_pretrained("adapter").eos_token_id
    tap.result(end == wanted, "adapters: it is the end token of the tokenizer", str(end))


def main() -> None:
    text = (SRC / "share/text/tinyshakespeare.txt").read_text().splitlines()
    shakespeare = exported("shakespeare", 1024, [SRC / "share/tokenizers/shakespeare/tokenizer.json"], 0)
    check_ids(shakespeare, [line for line in text[:400] if line])
    check_ids(shakespeare, ["\u00e9t\u00e9 \u4e2d\u6587 \U0001f600", "  a\tb\n\nc ", "<|endoftext|>x"])
    chat = exported("chat", 256, sorted((EXAMPLE / "tokenizer").iterdir()), 0, "--template", "chatml")
    check_ids(chat, [line for line in text[:100] if line])
    check_conversations(chat)
    ends = GenerationConfig.from_pretrained(chat).eos_token_id
    wanted = AutoTokenizer.from_pretrained(chat).convert_tokens_to_ids("<|im_end|>")
    check_adapters(wanted)
    tap.result(ends == [0, wanted], "the token that ends a turn joins the end tokens of the model", f"{ends} {wanted}")
    for form in ("llama3", "qwen", "mistral"):  # pieces of llama2 begin with a space of the tokenizer, see fp8-template(5)
        check_template_of_data(form)
    tap.done()


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    main()
    os.chdir("/")
