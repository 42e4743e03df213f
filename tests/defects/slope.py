#!/usr/bin/env python3
"""Moves the routers of a model by STEP along their gradient and against it.

slope.py MODEL GRADIENTS STEP ALONG AGAINST: files of safetensors; ALONG and AGAINST are written in f32.
Prints the norm of the routers' gradient, which is the slope of the loss along it.
"""
import array
import json
import math
import struct
import sys


def read(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        part = data[slice(*info["data_offsets"])]
        if info["dtype"] == "BF16":
            part = array.array("I", [value << 16 for value in array.array("H", part)]).tobytes()
        elif info["dtype"] != "F32":
            sys.exit(f"{path}: {name}: {info['dtype']}")
        tensors[name] = (info["shape"], array.array("f", part))
    return tensors


def write(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


model, gradients, step, along, against = sys.argv[1:]
weights = read(model)
routers = {name: values for name, (_, values) in read(gradients).items() if name.endswith(".gate.weight")}
norm = math.sqrt(sum(g * g for values in routers.values() for g in values))
for path, sign in ((along, 1), (against, -1)):
    moved = dict(weights)
    for name, gradient in routers.items():
        shape, values = weights[name]
        by = sign * float(step) / norm
        moved[name] = (shape, array.array("f", [w + by * g for w, g in zip(values, gradient)]))
    write(path, moved)
print(norm)
