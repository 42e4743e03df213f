#!/bin/sh
# The command line common to all tools: help, version, completion, unknown flags, a full or closed standard output.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

# lines FILE: number of lines, including an unterminated last line
lines() { awk 'END { print NR }' "$1"; }

# unread COMMAND...: runs the command with a pipe as standard output whose only reader has already closed it
unread() {
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
result $? "BIN contains tools"

for tool in $tools; do
  ok "$tool --help" "$tool" --help
  head -1 out | grep -Eq "^Example: (.* )?$tool "
  result $? "$tool: the help begins with an example"
  is "$tool: --help prints nothing on standard error" "$(cat err)" ""
  is "$tool: no line of the help exceeds 100 columns" "$(awk 'length > 100' out)" ""
  ok "$tool -h" "$tool" -h
  ok "$tool --version" "$tool" --version
  is "$tool: the version is one line" "$(lines out) $(lines err)" "1 0"
  is "$tool: the version names the tool and the release" "$(cut -d' ' -f1-2 <out)" "$tool $(cat "$SRC/share/VERSION")"
  is "$tool: the version names HDF5 if the tool links it" "$(grep -c ', HDF5 1\.' out)" "$(grep -c -m 1 H5open "$BIN/$tool")"

  case $tool in
    fp8-convert | fp8-export | fp8-info | fp8-init | fp8-log | fp8-quantize | fp8-resume | fp8-sweep | fp8-tokenize)
      is "$tool computes no model and loads no oneDNN" "$(ldd "$BIN/$tool" | grep -c libdnnl)" 0 ;;
  esac
  status "$tool: an unknown flag gives status 2" 2 "$tool" --nope
  is "$tool: an unknown flag is named in one line" "$(lines err) $(cut -d: -f1-2 <err)" "1 $tool: --nope"
  is "$tool: an unknown flag prints nothing on standard output" "$(cat out)" ""
  status "$tool: an unknown FP8_CPU_ISA gives status 2" 2 env FP8_CPU_ISA=avx1024 "$tool" --version
  is "$tool: an unknown FP8_CPU_ISA is named in one line" "$(lines err) $(cut -d: -f1-3 <err)" "1 $tool: FP8_CPU_ISA: 'avx1024'"
  status "$tool: an unknown one-letter flag gives status 2" 2 "$tool" -9
  is "$tool: an unknown one-letter flag is named in one line" "$(lines err) $(cut -d: -f1-2 <err)" "1 $tool: -9"

  ok "$tool --completion bash" "$tool" --completion bash
  ok "$tool: bash accepts the completion script" bash -n out
  for shell in zsh fish; do
    ok "$tool --completion $shell" "$tool" --completion $shell
    cp out completion
    command -v $shell >/dev/null || continue
    ok "$tool: $shell accepts the completion script" $shell -n completion
  done
  status "$tool: --completion of an unknown shell gives status 2" 2 "$tool" --completion teletype

  for word in --help --version "--completion=bash"; do
    "$tool" $word >/dev/full 2>err
    is "$tool $word: a full standard output gives status 2 and one line" "$? $(lines err) $(cut -d: -f1 <err)" "2 1 $tool"
    unread "$tool" $word
    is "$tool $word: a closed standard output gives status 0 and no message" "$?$(cat err)" "0"
  done
done
ok "fp8-init --verbose succeeds" sh -c 'fp8-init tiny -o model.h5 -v 2>usage'
says "--verbose prints time, memory and versions last" \
  '^fp8-init: [0-9.e-]+ s, peak memory [0-9.]+ [KMG]iB; fp8-init .*HDF5 .*, (avx2|avx512|avx512_bf16|generic)$' tail -n 1 usage
done_testing
