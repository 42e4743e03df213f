"""tokenizers/: ids and decoded texts of cases.jsonl, decode.jsonl and variants.jsonl by Hugging Face tokenizers. A line of variants.jsonl is a
tokenizer with some members replaced (`patch`: members of the file, of its model, `added` tokens, `renamed` entries of the vocabulary)."""

import json
from pathlib import Path

from reference import GOLDEN, File, finish
from tokenizers import Tokenizer

FOLDER = GOLDEN / "tokenizers"
KINDS = ("gpt2", "llama2", "llama2-metaspace", "llama3", "qwen2")


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def patched(base: dict, patch: dict) -> dict:
    """A tokenizer.json with some members replaced."""
    file = base | {k: v for k, v in patch.items() if k not in ("model", "added", "renamed")}
    file["added_tokens"] = base["added_tokens"] + patch.get("added", [])
    vocabulary = {patch.get("renamed", {}).get(text, text): n for text, n in base["model"]["vocab"].items()}
    file["model"] = base["model"] | {"vocab": vocabulary} | patch.get("model", {})
    return file


def compare(report: File, name: str, tokenizer: Tokenizer, cases: list[dict]) -> None:
    """Recomputes the cases."""
    for case in cases:
        found = {"decoded": tokenizer.decode(case.get("ids_no_special", case["ids"]), skip_special_tokens=False)}
        if "text" in case:
            found["ids"] = tokenizer.encode(case["text"]).ids
            found["decoded_skip_special"] = tokenizer.decode(case.get("ids_no_special", case["ids"]))
        if "ids_no_special" in case:
            found["ids_no_special"] = tokenizer.encode(case["text"], add_special_tokens=False).ids
        report.values += len(found)
        report.wrong += [f"{key} of {name} {json.dumps(case.get('text'))}" for key, value in found.items() if case.get(key, value) != value]


def main() -> None:
    files = {kind: json.loads((FOLDER / kind / "tokenizer.json").read_text(encoding="utf-8")) for kind in KINDS}
    for kind, file in files.items():
        for name in ("cases.jsonl", "decode.jsonl"):
            report = File(FOLDER / kind / name)
            compare(report, kind, Tokenizer.from_str(json.dumps(file)), records(FOLDER / kind / name))
            report.done()
    report = File(FOLDER / "variants.jsonl")
    for variant in records(FOLDER / "variants.jsonl"):
        tokenizer = Tokenizer.from_str(json.dumps(patched(files[variant["base"]], variant["patch"])))
        compare(report, variant["name"], tokenizer, variant["cases"])
    report.done()
    finish()


main()
