#!/bin/sh
# Runs the Python functions printed in fp8-checkpoint(5): load() reads a file, a folder of two ranks and bfloat16, and tensor() each tensor of a
# folder; both read blocks that are split in rows and columns. Needs h5py.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

O=${O:-$SRC/build}
python=$(with_h5py)
sed -n '/^import json, pathlib$/,/^\.Ed$/p' "$SRC/man/man5/fp8-checkpoint.5" | sed '$d' >loader.py
n=$(wc -l <loader.py)
[ "$n" -gt 10 ] && [ "$n" -lt 26 ]
result $? "the page contains a loader of at most 25 lines"
sed -n '/^import json, pathlib, h5py, numpy$/,/^\.Ed$/p' "$SRC/man/man5/fp8-checkpoint.5" | sed '$d' >reader.py
is "the page contains ten lines that read a tensor" "$(grep -c . reader.py)" 10
if [ -z "$python" ]; then
  ok "the loader reads checkpoints # SKIP h5py is not installed (share/setup/packages h5py installs it)" true
  done_testing
  exit
fi
head -c 5000 "$SRC/share/text/tinyshakespeare.txt" >text.txt
fp8-tokenize text.txt -o d.h5 >out 2>err
fp8-init tiny --dtype bf16 -o b.h5 >out 2>err
fp8-init tiny -o m.h5 >out 2>err
mpirun -n 2 fp8-step m.h5 --data d.h5 --out run --seq-length 16 --batch-size 2 --steps 2 -q >out 2>err
fp8-convert run/step-00000002 --merge -o merged.h5 >out 2>err
"$O/test/forge" run/step-00000002 boxes 5
cat >check.py <<'EOF'
import h5py, numpy
from loader import load
from reader import tensor
config, of_file = load("merged.h5")
same, of_folder = load("run/step-00000002")
assert config == same and config["model_type"] == "llama"
assert len(of_file) == 21 and of_file.keys() == of_folder.keys()
assert all(numpy.array_equal(of_file[key], of_folder[key]) for key in of_file)
assert all(numpy.array_equal(of_file[key], array) for key, array in load("boxes")[1].items())
names = []
with h5py.File("merged.h5") as merged:
    merged.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) and "dtype" in item.attrs else None)
    names = [name for name in names if "/" in name and not name.startswith("huggingface/")]
    for folder in "run/step-00000002", "boxes":
        for name in names:
            wanted, got = merged[name], tensor(folder, name)
            assert got.dtype == wanted.dtype and got.shape == wanted.shape and numpy.array_equal(got, wanted[()]), name
assert len(names) == 63, len(names)
fresh, rounded = load("m.h5")[1], load("b.h5")[1]
assert all(numpy.allclose(fresh[key], rounded[key], rtol=2 ** -8, atol=0) for key in fresh)
EOF
ok "they read a file, a folder of two ranks, one of blocks, and bfloat16" "$python" check.py
done_testing
