#!/bin/sh
# make install: tools, manuals, completions and presets where Debian expects them, working from there; make uninstall takes all of it away.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"

O=${O:-$(dirname "$BIN")}
root=$work/root usr=$work/root/usr
# Variables that the calling make was given hold here too (SAN, CXX), its other flags and its job server do not.
case ${MAKEFLAGS:-} in
  *'-- '*) MAKEFLAGS=" -- ${MAKEFLAGS#*-- }" ;;
  *) MAKEFLAGS= ;;
esac
export MAKEFLAGS
install() { make --no-print-directory -C "$SRC" "$1" O="$O" PREFIX=/usr DESTDIR="$root"; }

umask 022
ok "make install" install install
tools=$(cd "$SRC/tools" && for t in */crate.mk; do echo "${t%/*}"; done)
is "programs are those of tools/" "$(ls "$usr/bin")" "$tools"
is "each has its completion" "$(ls "$usr/share/bash-completion/completions")" "$tools"
for tool in $tools; do
  is "$tool is a program for everyone" "$(stat -c %a "$usr/bin/$tool")" 755
  ok "$tool is the one that was built" cmp "$usr/bin/$tool" "$BIN/$tool"
  is "$tool: the completion is its own" "$(cat "$usr/share/bash-completion/completions/$tool")" "$("$tool" --completion bash)"
done
ok "the manual pages are those of man/" diff -r "$SRC/man" "$usr/share/man"
ok "the text of the tutorial is there" cmp "$SRC/share/text/tinyshakespeare.txt" "$usr/share/fp8/text/tinyshakespeare.txt"
ok "the presets are those of share/" diff -r "$SRC/share/presets" "$usr/share/fp8/presets"
is "no file is writable by others" "$(find "$root" -perm /022 ! -type l)" ""

cp "$SRC/share/presets/tiny.json" "$usr/share/fp8/presets/only-here.json"
ok "an installed fp8-init finds the presets installed beside it" env -u FP8_SHARE "$usr/bin/fp8-init" only-here -o model.h5
ok "and makes the same of them" fp8-init tiny -o again.h5
ok "from any folder, through a link" sh -c "cd / && ln -s '$usr/bin/fp8-init' '$work/link' && env -u FP8_SHARE '$work/link' only-here -n -o x.h5"

ok "make uninstall" install uninstall
is "leaves nothing" "$(find "$root" ! -type d)" ""
ok "make uninstall again is no error" install uninstall
done_testing
