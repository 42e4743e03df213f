#!/bin/sh
# What every tool promises about its command line, whatever it does: help, version, completion, unknown flags, a standard
# output that is full or gone.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

# lines FILE: how many, an unfinished one included
lines() { awk 'END { print NR }' "$1"; }

# Run with nobody left to read: the only reader of the pipe has opened it and gone away before the tool starts.
unread() { # COMMAND...
  mkfifo pipe
  : <pipe &
  exec 9>pipe
  wait $!
  "$@" >&9 2>err
  got=$?
  exec 9>&-
  rm pipe
  return $got
}

tools=$(cd "$BIN" && ls)
[ -n "$tools" ]
result $? "there are tools in BIN"

for tool in $tools; do
  ok "$tool --help" "$tool" --help
  head -1 out | grep -Eq "^Example: (.* )?$tool "
  result $? "$tool: help opens with an example"
  is "$tool: help says nothing on standard error" "$(cat err)" ""
  is "$tool: no line of the help is wider than 100" "$(awk 'length > 100' out)" ""
  ok "$tool -h is the same" "$tool" -h
  ok "$tool --version" "$tool" --version
  is "$tool: the version is one line" "$(lines out) $(lines err)" "1 0"
  is "$tool: the version names the tool and the release" "$(cut -d' ' -f1-2 <out)" "$tool $(cat "$SRC/share/VERSION")"
  is "$tool: and HDF5 where that is linked" "$(grep -c ', HDF5 1\.' out)" "$(ldd "$BIN/$tool" | grep -q libhdf5 && echo 1 || echo 0)"

  status "$tool: an unknown flag is status 2" 2 "$tool" --nope
  is "$tool: and one line that names it" "$(lines err) $(cut -d: -f1-2 <err)" "1 $tool: --nope"
  is "$tool: and nothing on standard output" "$(cat out)" ""
  status "$tool: an unknown instruction set is status 2" 2 env FP8_CPU_ISA=avx1024 "$tool" --version
  is "$tool: and one line that says so" "$(lines err) $(cut -d: -f1-3 <err)" "1 $tool: FP8_CPU_ISA: 'avx1024'"
  status "$tool: an unknown letter is status 2" 2 "$tool" -9
  is "$tool: and one line that names it" "$(lines err) $(cut -d: -f1-2 <err)" "1 $tool: -9"

  ok "$tool --completion bash" "$tool" --completion bash
  ok "$tool: the completion is valid for bash" bash -n out
  status "$tool: no completion for other shells" 2 "$tool" --completion teletype

  for word in --help --version "--completion=bash"; do
    "$tool" $word >/dev/full 2>err
    is "$tool $word: a full standard output is status 2 and one line" "$? $(lines err) $(cut -d: -f1 <err)" "2 1 $tool"
    unread "$tool" $word
    is "$tool $word: nobody reads, quietly" "$?$(cat err)" "0"
  done
done
ok "--verbose" sh -c 'fp8-init tiny -o model.h5 -v 2>usage'
says "the time, the memory and the versions at the end" '^fp8-init: [0-9.e-]+ s, peak memory [0-9.]+ [KMG]iB; fp8-init .*HDF5 .*, (avx2|avx512|avx512_bf16|generic)$' tail -n 1 usage
done_testing
