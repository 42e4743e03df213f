# Programs that call cuBLASLt, NCCL and the CUDA runtime as those for a GPU do, with stand-ins of tests/libraries: the tests for a GPU, and fp8-step.
# Only with CUDA=1, for the headers of these libraries.
ifeq ($(CUDA),1)
$(eval $(call suite_rules,libraries,-Ilib/gemm/src -isystem $(cuda_more) -isystem $(cuda_home)/include))
on_device := $(patsubst %.cc,$O/%.o,$(wildcard tests/libraries/*_on_host.cc)) $O/tests/libraries/runtime.o
$(on_device): OPT := -O1
$(on_device): INC := -Itests/libraries/include -Itests/libraries $(libraries.inc) -Itests/support -isystem $(cuda_more) -isystem $(cuda_home)/include
stand_ins := $(addprefix $O/test/libraries/,libcublasLt.so.13 libnccl.so.2)
# cudaX of runtime.o comes before the archive of the real runtime.
calls_stand_ins := -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/libraries' -Wl,--export-dynamic-symbol='_ZN3fp87runtime*'
$O/test/libraries_test: $(on_device) $O/tests/support/cuda_shim.o $O/tests/support/shim_memory.o | $(stand_ins)
$O/test/libraries_test: LD := $(libraries.ld) $(gtest.lib) $(calls_stand_ins)
$O/test/device-step: $(call objs,tools/fp8-step) $(on_device) $O/tests/support/cuda_shim.o $O/tests/support/shim_memory.o $(fp8-step.libs) | $(stand_ins)
$O/test/device-step: LD := $(fp8-step.ld) $(calls_stand_ins)
tests += $O/test/device-step
$O/test/libraries/libcublasLt.so.13: $(wildcard tests/libraries/lt*)
$O/test/libraries/libnccl.so.2: $(wildcard tests/libraries/ccl*)
$(stand_ins): tests/libraries/runtime.h
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) $(CXXFLAGS) -O3 -fPIC -shared $(libraries.inc) -isystem $(cuda_home)/include -o $@ $(filter %.cc,$^)
endif
