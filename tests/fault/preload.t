#!/bin/sh
# The counter of calls itself: it kills, tears, loses and fails where it is told to. A test of faults that cannot find one holds nothing.
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/fault/lib.sh"
# Writes a file a, syncs it, the folder and what else a word says, and moves it to b; then b has 3 bytes more that are not synced.
program='
import os, sys
def folder():
    fd = os.open(".", os.O_RDONLY); os.fsync(fd); os.close(fd)
fd = os.open("a", os.O_CREAT | os.O_RDWR | os.O_APPEND)
os.write(fd, b"one")
if "file" in sys.argv: os.fsync(fd)
if "name" in sys.argv: folder()
os.rename("a", "b")
if "moved" in sys.argv: folder()
os.write(fd, b"two")
os.mkdir("end")
'
try() { # DO N WORDS...
  rm -rf "${place:?}"/*
  [ -z "$old" ] || echo old >b
  do=$1 at=$2
  shift 2
  faulty "$do" "$at" python3 -c "$program" "$@"
  echo "$? $(for f in *; do [ "$f" = "*" ] || echo "$f:$([ -d "$f" ] || tr '\0' 0 <"$f")"; done | tr '\n' ' ')"
}
old=
is "nothing is done where nothing is asked" "$(try count 0)" "0 b:onetwo end: "
rm -rf "${place:?}"/*
is "calls are counted" "$(calls python3 -c "$program" file name moved; cut -d' ' -f1 ../calls | tr '\n' ' ')" "8
open write fsync fsync rename fsync write mkdir "
is "killed before a call" "$(try kill 3)" "137 a:one "
is "in the middle of one" "$(try torn 2)" "137 a:o "
is "a call that fails" "$(try eio 2 | cut -d' ' -f1) $(grep -c 'Errno 5' ../err)" "1 1"
is "one of a kind" "$(FAULT_CALLS=rename try enospc 1) $(grep -c 'Errno 28' ../err)" "1 a:one  1"
is "another program" "$(FAULT_IN=fp8-step try kill 1)" "0 b:onetwo end: "
is "a write that is lost, though it succeeds" "$(try drop 1) / $(try drop 2) / $(try drop 3)" "0 b:two end:  / 0 b:one end:  / 0 b:onetwo end: "
is "a limit on the size of files" "$(FAULT_BYTES=4 try limit 4)" "0 b:onet end: "
is "power: what was not synced is lost" "$(try power 5)" "137 "
is "the name too" "$(try power 6 file)" "137 "
is "a name that was synced stays, without the bytes" "$(try power 6 name)" "137 a:000000 "
is "with the bytes" "$(try power 7 file name)" "137 a:one000 "
is "a move that was not synced is undone" "$(try power 6 file name)" "137 a:one "
is "one that was synced is not" "$(try power 8 file name moved)" "137 b:one000 "
is "bytes alone" "$(try bytes 5)" "137 b:000000 "
is "but not those that were synced" "$(try bytes 6 file)" "137 b:one000 "
old=yes
is "what it replaced comes back" "$(try power 6 file name)" "137 a:one b:old "
is "unless that was synced" "$(try power 7 file name moved)" "137 b:one "
done_testing
