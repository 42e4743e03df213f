#!/bin/sh
# make install puts programs, manual pages, completions and presets where Debian expects them; make uninstall removes them.
# shellcheck disable=SC2086 # lists of words on purpose
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

O=${O:-$(dirname "$BIN")}
root=$work/root usr=$work/root/usr
# Keeps the variables of the calling make (SAN, CXX) and drops its other flags and its job server.
case ${MAKEFLAGS:-} in
  *'-- '*) MAKEFLAGS=" -- ${MAKEFLAGS#*-- }" ;;
  *) MAKEFLAGS= ;;
esac
export MAKEFLAGS
install() { make --no-print-directory -C "$SRC" "$1" O="$O" PREFIX=/usr DESTDIR="$root"; }

umask 022
ok "make install" install install
is "make install compiles and links nothing again" "$(grep -cE '^(CXX|NVCC|AR|LINK) ' out)" 0
tools=$(cd "$SRC/tools" && for t in */crate.mk; do echo "${t%/*}"; done)
is "the installed programs are those of tools/" "$(ls "$usr/bin")" "$tools"
share=$usr/share
is "each program has a completion file for bash" "$(ls "$share/bash-completion/completions")" "$(printf '%s\n' $tools mpirun)"
is "each program has a completion file for zsh" "$(ls "$share/zsh/site-functions")" "$(printf '_%s\n' $tools)"
is "each program has a completion file for fish" "$(ls "$share/fish/vendor_completions.d")" "$(printf '%s.fish\n' $tools mpirun)"
is "after mpirun bash loads the completion of fp8-step" "$(cat "$share/bash-completion/completions/mpirun")" "$(fp8-step --completion bash)"
for tool in $tools; do
  is "$tool has mode 755" "$(stat -c %a "$usr/bin/$tool")" 755
  is "$tool has no symbol table" "$(readelf -S "$usr/bin/$tool" | grep -c ' \.symtab')" 0
  is "$tool runs" "$("$usr/bin/$tool" --version)" "$("$tool" --version)"
  is "$tool: the completion file is the output of --completion" "$(cat "$usr/share/bash-completion/completions/$tool")" "$("$tool" --completion bash)"
done
ok "the installed manual pages are those of man/" diff -r "$SRC/man" "$usr/share/man"
ok "the text of the tutorial is installed" cmp "$SRC/share/text/tinyshakespeare.txt" "$usr/share/fp8/text/tinyshakespeare.txt"
ok "the installed presets are those of share/" diff -r "$SRC/share/presets" "$usr/share/fp8/presets"
ok "the installed scripts for Slurm are those of share/" diff -r "$SRC/share/slurm" "$usr/share/fp8/slurm"
is "no file is writable by group or others" "$(find "$root" -perm /022 ! -type l)" ""

cp "$SRC/share/presets/tiny.json" "$usr/share/fp8/presets/only-here.json"
ok "the installed fp8-init finds the installed presets" env -u FP8_SHARE "$usr/bin/fp8-init" only-here -o model.h5
ok "fp8-init makes the preset from the source tree" fp8-init tiny -o again.h5
ok "the installed fp8-init finds the presets when called through a link" \
  sh -c "cd / && ln -s '$usr/bin/fp8-init' '$work/link' && env -u FP8_SHARE '$work/link' only-here -n -o x.h5"

ok "make install STRIP=" make --no-print-directory -C "$SRC" install O="$O" PREFIX=/usr DESTDIR="$root" STRIP=
for tool in $tools; do
  ok "with STRIP= $tool is the built program" cmp "$usr/bin/$tool" "$BIN/$tool"
done
ok "make uninstall" install uninstall
is "make uninstall removes all files" "$(find "$root" ! -type d)" ""
ok "a second make uninstall succeeds" install uninstall
done_testing
