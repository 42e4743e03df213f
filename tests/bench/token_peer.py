"""Hugging Face tokenizers on one core. Usage: token_peer.py TEXT PASSES FOLDER... Prints as JSON, for each folder, the bytes per CPU second of
`encode_batch_fast`: for the paragraphs of TEXT (first pass of a new tokenizer, median of the later passes) and for TEXT as one document."""

import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402


def seconds(tokenizer: Tokenizer, texts: list[str]) -> float:
    begun = time.process_time()
    tokenizer.encode_batch_fast(texts)
    return time.process_time() - begun


def main() -> None:
    text, passes = Path(sys.argv[1]).read_text(encoding="utf-8"), int(sys.argv[2])
    documents = [d for d in text.split("\n\n") if d]
    found = {}
    for folder in map(Path, sys.argv[3:]):
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        times = [seconds(tokenizer, documents) for _ in range(passes + 1)]
        whole = statistics.median(seconds(tokenizer, [text]) for _ in range(passes))
        size = sum(map(len, documents))
        found[folder.name] = {"documents": size / statistics.median(times[1:]), "first_pass": size / times[0], "one_text": len(text) / whole}
    print(json.dumps(found))


main()
