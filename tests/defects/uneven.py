#!/usr/bin/env python3
"""Divides the values of the second half of the heads by 2^16, and multiplies their columns of o_proj by it.

uneven.py MODEL RESULT: files of safetensors; RESULT is written in f32. The model computes the same in f32. In FP8 a scale
of whole rows loses the half with small numbers, and a scale of the half that a rank has loses nothing.
"""
import sys

from tensors import read, write

weights = read(sys.argv[1])
for name, (shape, values) in weights.items():
    rows, columns = shape if len(shape) == 2 else (0, 0)
    if name.endswith(".v_proj.weight"):
        for i in range(rows // 2 * columns, rows * columns):
            values[i] *= 2.0**-16
    if name.endswith(".o_proj.weight"):
        for i in range(rows * columns):
            values[i] *= 2.0**16 if i % columns >= columns // 2 else 1
write(sys.argv[2], weights)
