#!/usr/bin/env python3
"""Keeps of a log, from standard input to standard output, what a comparison of losses needs."""

import json
import sys

for line in sys.stdin:
    record = json.loads(line)
    if record["type"] == "run":
        kept = {"type": "run", "config": {"seed": record["config"]["seed"]}, "mesh": {"world": record["mesh"]["world"]}}
    elif record["type"] == "step":
        kept = {key: record[key] for key in ("type", "step", "tokens")} | {"loss": round(record["loss"], 6)}
    else:
        continue
    print(json.dumps(kept, separators=(",", ":")))
