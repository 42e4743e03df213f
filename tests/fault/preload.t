#!/bin/sh
# fault.so itself: it counts calls and injects each kind of fault at the requested call.
. "${SRC:-.}/tests/cli/lib.sh"
. "$SRC/tests/fault/lib.sh"
# The program writes the file a, renames it to b and appends 3 bytes that are not synced. Words: `file` syncs a, `name` syncs the folder
# before the rename, `moved` syncs the folder after the rename.
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
is "count injects no fault" "$(try count 0)" "0 b:onetwo end: "
rm -rf "${place:?}"/*
is "calls are counted and logged" "$(calls python3 -c "$program" file name moved; cut -d' ' -f1 ../calls | tr '\n' ' ')" "8
open write fsync fsync rename fsync write mkdir "
is "kill kills before the call" "$(try kill 3)" "137 a:one "
is "torn writes half of the bytes and kills" "$(try torn 2)" "137 a:o "
is "eio makes the call fail with EIO" "$(try eio 2 | cut -d' ' -f1) $(grep -c 'Errno 5' ../err)" "1 1"
is "FAULT_CALLS selects a kind of call, which fails with ENOSPC" "$(FAULT_CALLS=rename try enospc 1) $(grep -c 'Errno 28' ../err)" "1 a:one  1"
is "FAULT_IN excludes other programs" "$(FAULT_IN=fp8-step try kill 1)" "0 b:onetwo end: "
is "drop loses a write that succeeds" "$(try drop 1) / $(try drop 2) / $(try drop 3)" "0 b:two end:  / 0 b:one end:  / 0 b:onetwo end: "
is "limit sets a limit on the file size" "$(FAULT_BYTES=4 try limit 4)" "0 b:onet end: "
is "power loses a file that was not synced" "$(try power 5)" "137 "
is "power loses the name of a synced file in an unsynced folder" "$(try power 6 file)" "137 "
is "power keeps a synced name with zeros for unsynced bytes" "$(try power 6 name)" "137 a:000000 "
is "power keeps a synced name with the synced bytes" "$(try power 7 file name)" "137 a:one000 "
is "power undoes a rename that was not synced" "$(try power 6 file name)" "137 a:one "
is "power keeps a rename that was synced" "$(try power 8 file name moved)" "137 b:one000 "
is "bytes replaces unsynced bytes with zeros" "$(try bytes 5)" "137 b:000000 "
is "bytes keeps synced bytes" "$(try bytes 6 file)" "137 b:one000 "
old=yes
is "power restores a file replaced by an unsynced rename" "$(try power 6 file name)" "137 a:one b:old "
is "power does not restore a file replaced by a synced rename" "$(try power 7 file name moved)" "137 b:one "
done_testing
