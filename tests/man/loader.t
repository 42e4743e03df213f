#!/bin/sh
# Runs the Python loader printed in fp8-checkpoint(5): it reads a file, a folder of two ranks and bfloat16. Needs h5py.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

python=
for p in python3 /usr/bin/python3; do "$p" -c 'import h5py' 2>/dev/null && python=$p; done
sed -n '/^import json, pathlib$/,/^\.Ed$/p' "$SRC/man/man5/fp8-checkpoint.5" | sed '$d' >loader.py
n=$(wc -l <loader.py)
[ "$n" -gt 10 ] && [ "$n" -lt 26 ]
result $? "the page contains a loader of at most 25 lines"
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
cat >check.py <<'EOF'
import numpy
from loader import load
config, of_file = load("merged.h5")
same, of_folder = load("run/step-00000002")
assert config == same and config["model_type"] == "llama"
assert len(of_file) == 21 and of_file.keys() == of_folder.keys()
assert all(numpy.array_equal(of_file[key], of_folder[key]) for key in of_file)
fresh, rounded = load("m.h5")[1], load("b.h5")[1]
assert all(numpy.allclose(fresh[key], rounded[key], rtol=2 ** -8, atol=0) for key in fresh)
EOF
ok "the loader reads a file, a folder of two ranks and bfloat16" "$python" check.py
done_testing
