"""chat/: documents and packed sequences of the conversations there, by the rules of its README and Hugging Face tokenizers. LLaMA-Factory itself, which
made the values, is not run."""

import bisect
import json
from pathlib import Path

from reference import GOLDEN, File, finish
from tokenizers import Tokenizer

FOLDER = GOLDEN / "chat"
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
MODES = ("assistant", "last", "all")
Turns = list[tuple[str, str]]
Document = tuple[list[int], list[bool]]


def records(path: Path) -> list[dict]:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.split("\n") if line]


def conversation(record: dict) -> tuple[str, Turns]:
    """System prompt and turns of a record of any of the three formats."""
    if "instruction" in record or "output" in record:
        user = "\n".join(part for part in (record.get("instruction"), record.get("input")) if part)
        return record.get("system") or "", [tuple(pair) for pair in record.get("history") or []] + [(user, record["output"])]
    role, content, system_role = ("role", "content", "system") if "messages" in record else ("from", "value", "system")
    messages = record["messages"] if "messages" in record else record["conversations"]
    system = "" if "messages" in record else record.get("system") or ""
    if messages[0][role] == system_role:
        system, messages = messages[0][content], messages[1:]
    return system, [(messages[i][content], messages[i + 1][content]) for i in range(0, len(messages), 2)]


class Form:
    """A template with its tokenizer."""

    def __init__(self, name: str) -> None:
        self.name, self.tokenizer = name, Tokenizer.from_file(str(FOLDER / name / "tokenizer.json"))
        config = json.loads((FOLDER / name / "tokenizer_config.json").read_text(encoding="utf-8"))
        eos = {"llama3": "<|eot_id|>", "qwen": "<|im_end|>"}.get(name, config["eos_token"])
        self.bos, self.eos, self.pad = (
            token and self.tokenizer.token_to_id(token) for token in (config["bos_token"], eos, config["pad_token"] or eos)
        )

    def ids(self, *pieces: str | int) -> list[int]:
        found = []
        for piece in pieces:
            found += [piece] if isinstance(piece, int) else self.tokenizer.encode(piece, add_special_tokens=False).ids if piece else []
        return found

    def prompt(self, system: str, user: str, first: bool) -> list[int]:
        if self.name == "llama3":
            head = f"<|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>" if system else ""
            text = f"<|start_header_id|>user<|end_header_id|>\n\n{user}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
            return self.ids(*([self.bos, head] if first else []), text)
        if self.name == "qwen":
            head = f"<|im_start|>system\n{system or QWEN}<|im_end|>\n" if first else ""
            return self.ids(head, f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n")
        if self.name == "mistral":
            head = f"{system}\n\n" if first and system else ""
            return self.ids(*([self.bos] if first else []), f"[INST] {head}{user}[/INST]")
        head = f"<<SYS>>\n{system}\n<</SYS>>\n\n" if first and system else ""
        return self.ids(self.bos, f"[INST] {head}{user} [/INST]")

    def answer(self, answer: str) -> list[int]:
        if self.name == "llama3":
            return self.ids(f"{answer}<|eot_id|>")
        if self.name == "qwen":
            return self.ids(f"{answer}<|im_end|>\n")
        return self.ids(f" {answer}" if self.name == "mistral" else answer, self.eos)

    def document(self, record: dict, mode: str, cutoff: int) -> Document:
        system, turns = conversation(record)
        pairs = [(self.prompt(system, user, i == 0), self.answer(answer)) for i, (user, answer) in enumerate(turns)]
        walk = list(enumerate(pairs))
        done, kept = 0, {}
        for i, (prompt, answer) in walk[::-1] if mode == "last" else walk:
            if done >= cutoff:
                break
            s, t, room = len(prompt), len(answer), cutoff - done
            most = room if 2 * t < room else room - s if 2 * s < room else int(room * (t / (s + t)))
            answers = min(most, t)
            kept[i] = (min(room - answers, s), answers)
            done += sum(kept[i])
        ids, counts = [], []
        for i, (prompt, answer) in walk:
            s, t = kept.get(i, (0, 0))
            ids += prompt[:s] + answer[:t]
            counts += [mode == "all"] * s + [mode != "last" or i == len(pairs) - 1] * t
        return ids, counts


def spans(counts: list[bool]) -> list[list[int]]:
    found = []
    for i, counted in enumerate(counts):
        if counted and found and found[-1][1] == i:
            found[-1][1] = i + 1
        elif counted:
            found.append([i, i + 1])
    return found


def packed(form: Form, all_records: list[dict], mode: str, cutoff: int) -> list[dict]:
    """Sequences of `cutoff` tokens."""
    rows = []
    for at in range(0, len(all_records), 1000):
        left = sorted(((form.document(r, mode, cutoff - 1), n) for n, r in enumerate(all_records[at : at + 1000])), key=lambda d: (len(d[0][0]), d[1]))
        while left:
            ids, counts, lengths, room = [], [], [], cutoff - 1
            while (place := bisect.bisect([len(d[0][0]) for d in left], room)) > 0:
                (document, mask), _ = left.pop(place - 1)
                ids, counts, room = ids + document, [*counts, False, *mask[1:]], room - len(document)
                lengths.append(len(document))
            padding = cutoff - len(ids)
            rows.append({"ids": ids + [form.pad] * padding, "trained": spans(counts), "lengths": lengths, "padding": padding})
    return rows


def compare(path: Path, computed: list[dict]) -> None:
    report = File(path)
    stored = [{k: v for k, v in record.items() if k != "documents"} for record in records(path)]
    report.values = sum(len(record) for record in stored)
    report.wrong = [f"record {i}" for i, (a, b) in enumerate(zip(stored, computed)) if a != b]
    report.wrong += [f"{len(computed)} records, not {len(stored)}"] if len(stored) != len(computed) else []
    report.done()


def main() -> None:
    data = {name: records(FOLDER / "data" / file) for name, file in
            (("alpaca", "alpaca.json"), ("sharegpt", "sharegpt.jsonl"), ("openai", "openai.jsonl"))}
    for name in ("llama2", "llama3", "mistral", "qwen"):
        form = Form(name)
        for kind, conversations in data.items():
            for mode in MODES:
                for cutoff in (128, 2048):
                    documents = (form.document(record, mode, cutoff) for record in conversations)
                    found = [{"ids": ids, "trained": spans(counts)} for ids, counts in documents]
                    compare(FOLDER / name / f"{kind}-{mode}-{cutoff}.jsonl", found)
        everything = [record for conversations in data.values() for record in conversations]
        compare(FOLDER / name / "packed-256.jsonl", packed(form, everything, "assistant", 256))
    finish()


if __name__ == "__main__":
    main()
