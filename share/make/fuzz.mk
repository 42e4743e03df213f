# Fuzzes each parser for TIME seconds with libFuzzer. The libraries are built with clang in a separate folder.
fuzz:
	@share/setup/packages fuzz
	@$(MAKE) --no-print-directory O=$O/fuzz CXX='$(CXX:%g++=%clang++)' CUDA=0 OPT=-O1 MARCH=$(if $(x86),x86-64) OPENMP=-fopenmp-simd warnings=-w \
	  SAN=fuzzer-no-link,address,undefined fuzzers
	@O=$(abspath $O)/fuzz T='$T' tests/fuzz/run $(TIME)
fuzzers: $(fuzz_targets:%=$O/fuzz/%)
.PHONY: fuzz fuzzers
