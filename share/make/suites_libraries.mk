# Programs that call cuBLASLt, NCCL and the CUDA runtime as those for a GPU do, with stand-ins of tests/libraries: the tests for a GPU, and fp8-step.
# Only with CUDA=1, for the headers of these libraries.
ifeq ($(CUDA),1)
$(eval $(call suite_rules,libraries,-Ilib/gemm/src -isystem $(cuda_more) -isystem $(cuda_home)/include))
on_device := $(patsubst %.cc,$O/%.o,$(wildcard tests/libraries/*_on_host.cc)) $O/tests/libraries/runtime.o
$(on_device): OPT := -O1
on_device_inc := -Itests/libraries/include -Itests/libraries $(libraries.inc) -Itests/support -isystem $(cuda_more) -isystem $(cuda_home)/include
$(on_device): INC := $(on_device_inc)
stand_ins := $(addprefix $O/test/libraries/,libcublasLt.so.13 libnccl.so.2)
# cudaX of runtime.o comes before the archive of the real runtime.
calls_stand_ins := -Wl,--export-dynamic-symbol=_ZN3fp87runtime* -Wl,--disable-new-dtags,-rpath,
$O/test/libraries_test: $(on_device) $(shim) | $(stand_ins)
$O/test/libraries_test: LD := $(libraries.ld) $(gtest.lib) $(calls_stand_ins)'$$ORIGIN/libraries'
device_step := $(fp8-step.objs) $(on_device) $(shim)
$O/test/device-step: $(device_step) $(fp8-step.libs) | $(stand_ins)
$O/test/device-step: LD := $(fp8-step.ld) $(calls_stand_ins)'$$ORIGIN/libraries'
# For tests/defects, whose programs are in other folders.
device_cxx = $(CXX) $(CXXFLAGS) -O1 $(on_device_inc) $(fp8-step.inc)
device_ld  = $(fp8-step.libs) $(fp8-step.ld) $(calls_stand_ins)$(abspath $O)/test/libraries
tests += $O/test/device-step
$O/test/libraries/libcublasLt.so.13: $(wildcard tests/libraries/lt*) lib/gemm/src/cublaslt_names.h
$O/test/libraries/libnccl.so.2: $(wildcard tests/libraries/ccl*)
$(stand_ins): tests/libraries/runtime.h
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) $(CXXFLAGS) -O1 -fPIC -shared $(libraries.inc) -Ilib/gemm/src -isystem $(cuda_more) -isystem $(cuda_home)/include -o $@ $(filter %.cc,$^)
endif
