# Sources named *.cu: nvcc compiles those with device code.
# Without -fmad=false, nvcc contracts products and sums to FMA, and device code would round differently from host code.
# -O1 is for code of the host; that of the device is optimized in any case.
NVCCFLAGS = -std=c++20 -O1 -lineinfo -fmad=false --expt-relaxed-constexpr --extended-lambda $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$a,code=sm_$a) \
  $(if $(WERROR),-Werror all-warnings) -isystem $(cuda_more) -Xcompiler '$(MARCH:%=-march=%) -ffp-contract=off -fopenmp -Wall -Wextra -Wshadow $(sanitize) -ffile-prefix-map=$(CURDIR)=.'
nvcc     = $(NVCC) $(NVCCFLAGS) $(INC)
cuda_cxx = $(CXX) $(CXXFLAGS) $(use_pch) -isystem $(cuda_more) -isystem $(cuda_home)/include $(INC)
$O/%.o: %.cu $$(call changed,$$(nvcc))
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(nvcc) -MMD -MP -c -o $@ $<
	$(call record,$(nvcc))
# .cu files without device code are compiled by the host compiler, which parses them once; nvcc parses them twice. They include <cuda.h>, as clang does
# before each .cu file, which must not be found as lib/ops/src/cuda.h: .cu files have no -I for the folder in which they are.
host_cuda := device/src/memory_cuda gemm/src/cublaslt_plan gemm/tests/cublaslt_test comm/src/nccl_library comm/src/nccl_communicator comm/src/solo_on_device \
  ops/src/attention_cudnn
$(host_cuda:%=$O/lib/%.o): $O/%.o: %.cu $$(addsuffix .gch,$$(pch)) $$(call changed,$$(cuda_cxx))
	@mkdir -p $(@D)
	$(call say,CXX ,$<)$(cuda_cxx) -MMD -MP -x c++ -c -o $@ $<
	$(call record,$(cuda_cxx))
# Only attention_cudnn.cu and the tests in cudnn.mk include cuDNN's frontend, whose headers take half a minute to compile. It has no hot code.
$O/lib/ops/src/attention_cudnn.o: $(cuda_more)/cudnn_frontend.h
$O/lib/ops/src/attention_cudnn.o: OPT := -O1
$(cuda_more)/cudnn_frontend.h:
	$(error the headers of the cuDNN frontend are missing: run make setup to download them, or build with make CUDA=0)
# fp8-step as builds without CUDA link it: the linker names a function of a .cu file that no source named *_nocuda.cc has a stub of.
ifeq ($(CUDA),1)
stubs_of = $(patsubst %.cc,$O/%.o,$(wildcard lib/$1/src/*_nocuda.cc))
stubs   := $(foreach c,$(fp8-step.all),$(call stubs_of,$c))
$(foreach c,$(fp8-step.all),$(foreach s,$(call stubs_of,$c),$(eval $s: INC := $($c.inc) -Ilib/$c/src)))
$(stubs): OPT := -O1
$O/test/without-cuda: $(fp8-step.objs) $(foreach c,$(fp8-step.all),$(call objs_of,$(filter-out %.cu,$($c.srcs)))) $(stubs)
$O/test/without-cuda: LD := $(fp8-step.ld)
tests += $O/test/without-cuda
endif
