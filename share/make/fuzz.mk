# Each target in tests/fuzz is linked with libFuzzer by make fuzz, and all with replay.cc, which reads their corpora, by make check.
$(eval $(call load,tests/fuzz))
fuzz_targets := $(filter-out replay hdf5_repair,$(notdir $(basename $(wildcard tests/fuzz/*.cc))))
$(eval $(call test_rule,fuzz_test,$(wildcard tests/fuzz/*.cc),fuzz))
$(call objs,tests/fuzz): OPT := -O1
$(call objs,tests/fuzz): INC := $(fuzz.inc) -Ilib/ckpt/src -Ilib/log/src -Itests/support $(if $(findstring fuzzer,$(SAN)),,-DFP8_REPLAY)
define fuzz_rules # $1 = target
$O/fuzz/$1: LD := $(fuzz.ld) -fsanitize=fuzzer
$O/fuzz/$1: $O/tests/fuzz/$1.o $O/tests/fuzz/hdf5_repair.o $(fuzz.libs)
endef
$(foreach t,$(fuzz_targets),$(eval $(call fuzz_rules,$t)))
# Fuzzes each parser for TIME seconds with libFuzzer. The libraries are built with clang in a separate folder.
fuzz:
	@share/setup/packages fuzz
	@$(MAKE) --no-print-directory O=$O/fuzz CXX='$(CXX:%g++=%clang++)' CUDA=0 OPT=-O1 MARCH=$(if $(x86),x86-64) OPENMP=-fopenmp-simd warnings=-w \
	  SAN=fuzzer-no-link,address,undefined fuzzers
	@O=$(abspath $O)/fuzz T='$T' tests/fuzz/run $(TIME)
fuzzers: $(fuzz_targets:%=$O/fuzz/%)
.PHONY: fuzz fuzzers
