# Everything with CUDA compiled and linked against CUDA 12.9: .cu files by clang, for PyPI has no nvcc 12, and assembled by ptxas 12.9. Warnings are
# those of CXX and nvcc in other builds.
cuda12      := .cache/cuda12
cuda12_made := bin/fp8-step bin/fp8-doctor test/gpu_test $(patsubst %.cu,%.o,$(wildcard lib/*/tests/*.cu))
cuda12_flags = -x cuda --cuda-path=$(cuda12) $(CUDA_ARCHS:%=--cuda-gpu-arch=sm_%) --no-cuda-include-ptx=all -std=c++20 -O3 $(MARCH:%=-march=%) -ffp-contract=off \
  -w -isystem $(cuda12)/include -ffile-prefix-map=$(CURDIR)=.
cuda12_make  = O=$1 CUDA=1 NVCC=clang++-19 NVCCFLAGS='$$(cuda12_flags)' cuda_home=$(cuda12) cuda_more=$(cuda12)/include
check-cuda12:
	@share/setup/cuda12
	@$(MAKE) --no-print-directory $(call cuda12_make,$O-cuda12) $(cuda12_made:%=$O-cuda12/%)
	@O=$O-cuda12 tests/cuda12/run
.PHONY: check-cuda12
