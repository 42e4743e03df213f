#!/usr/bin/env python3
"""Moves the routers of a model by STEP along their gradient and against it.

slope.py MODEL GRADIENTS STEP ALONG AGAINST: files of safetensors; ALONG and AGAINST are written in f32.
Prints the norm of the routers' gradient, which is the slope of the loss along it.
"""
import array
import math
import sys

from tensors import read, write

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
