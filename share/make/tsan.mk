# Background threads under ThreadSanitizer, built in a separate folder. OpenMP runs with one thread because GCC's runtime is not instrumented.
tsan_built := $(addprefix test/,watchdog_test comm_test comm_mpi_test state_test log_test) $(addprefix bin/,fp8-step fp8-init fp8-tokenize fp8-info fp8-log)
check-tsan:
	@$(MAKE) --no-print-directory O=$O/tsan CUDA=0 OPT=-O1 SAN=thread $(tsan_built:%=$O/tsan/%)
	@O=$(abspath $O)/tsan T='$T' tests/run tsan
.PHONY: check-tsan
