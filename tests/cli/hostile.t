#!/bin/sh
# Malicious files: each is refused with its name, the reason and status 2, and no other file is opened.
. "${SRC:-.}/tests/cli/lib.sh"

refuses() { # FILE REGEX
  ln -sf "$corpus/$1.h5" x.h5
  says "$1 is refused with its reason" "^fp8-info: x.h5: $2" fp8-info x.h5
  status "$1 gives status 2" 2 fp8-info x.h5
}

corpus=$SRC/tests/fuzz/corpus/checkpoint
refuses external-link '/weights: soft and external links are not allowed'
refuses soft-link '/weights: soft and external links are not allowed'
refuses hard-link '/config: linked more than once'
refuses cycle 'linked more than once'
refuses external-data '/weights/w: external storage is not allowed'
refuses deflate-bomb '/weights/w: only contiguous layout is allowed'
refuses virtual '/weights/w: only contiguous layout is allowed'
refuses huge-late '/weights/w: declares more bytes than it stores'
refuses huge-rank '/weights/w: shape: too large'
refuses vlen-strings '/weights/w: its type is not allowed'
refuses vlen-attribute 'attribute note: its type is not allowed'
refuses region-reference '/weights/w: its type is not allowed'
refuses reference-attribute 'attribute ref: its type is not allowed'
refuses committed-type '/t: neither a group nor a dataset'
refuses dtype-lie '/weights/w: attribute dtype does not fit'
refuses deep '/g.*: groups nest deeper than 16'
refuses user-block-length 'damaged: [0-9]* bytes after its end'
refuses user-block-long 'truncated: '
refuses no-attribute-tree 'damaged: '
status "a wrong digest gives status 2" 2 fp8-info "$corpus/user-block-digest.h5" --verify

# Files that the malicious file refers to are not opened.
if command -v strace >/dev/null; then
  for name in external-link external-data virtual; do
    strace -f -e trace=open,openat -o trace fp8-info "$corpus/$name.h5" >/dev/null 2>&1
    status "$name: the referenced file is not opened" 1 grep -E '/etc/(passwd|other)' trace
  done
fi
done_testing
