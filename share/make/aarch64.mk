# The whole build for aarch64 (the CPU of a Grace Hopper) by Debian's cross compiler, and its unit tests under qemu.
aarch64_root := $(CURDIR)/.cache/aarch64/root
check-aarch64:
	@share/setup/aarch64
	@$(MAKE) --no-print-directory O=$O-aarch64 CXX='$(filter ccache,$(CXX)) aarch64-linux-gnu-g++' AR=aarch64-linux-gnu-ar MARCH= CUDA=0 PCH=0 \
	  SYSROOT=$(aarch64_root) all tests
	@O=$(abspath $O)-aarch64 T='$T' EMULATOR='qemu-aarch64 -L $(aarch64_root)' tests/run unit
.PHONY: check-aarch64
