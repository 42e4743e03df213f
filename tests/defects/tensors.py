"""Files of safetensors in F32 and BF16: {name: (shape, values)}."""
import array
import json
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
