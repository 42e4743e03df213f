# Test programs in tests/, and how those with kernels on the host are compiled.
define suite_rules # $1 = folder in tests that contains a test program, $2 = include flags for headers of other tests
$(call load,tests/$1)
$(call test_rule,$1_test,$(wildcard tests/$1/*_test.cc),$1)
$($1_test.objs): INC := $($1.inc) $2 -Itests/support
$($1_test.objs): OPT := -O1
endef
$(eval $(call suite_rules,golden))
$(eval $(call suite_rules,fault,-Ilib/ckpt/tests))
$(eval $(call suite_rules,gpu))
# Sources with kernels compiled for the host, which are linked before the libraries that they replace parts of.
$(eval $(call suite_rules,kernels))
on_host := $(patsubst %.cc,$O/%.o,$(wildcard tests/kernels/*_on_host.cc))
$(on_host): OPT := -O1
$(on_host): INC := -Itests/kernels/include $(kernels.inc) -Itests/support
$O/test/kernels_test: $(on_host) $(shim)
# Tests of what the private cuda.h declares; those of single kernels compile these again.
$O/test/ops_test: $O/tests/kernels/ops_on_host.o $O/tests/kernels/quant_on_host.o
$O/test/quant_test: $O/tests/kernels/quant_on_host.o
$O/test/optim_test: $O/tests/kernels/optim_on_host.o
# Tests that read plain HDF5 files.
plain := $O/tests/support/plain_file.o
$(plain): OPT := -O1
$(plain): INC := $(h5.inc) -Ilib/h5/src -Itests/support
$(addprefix $O/test/,h5_test convert_test train_test train_mpi_test golden_test gpu_test kernels_test): $(plain)
$O/tests/fault/forge.o: INC := $(fault.inc) -Itests/support
$O/test/forge: LD := $(fault.ld)
$O/test/forge: $O/tests/fault/forge.o $(fault.libs)
# Sources that run kernels in the shim, which are tests named *shim_test.cc and those above, call the checks of tests/support/shim_memory.h at each
# access to memory. AddressSanitizer excludes these flags.
in_shim := $(patsubst %.cc,$O/%.o,$(wildcard lib/*/tests/*shim_test.cc))
$(in_shim) $(on_host): CXXFLAGS += $(if $(SAN),,-fsanitize=thread,alignment)
$(in_shim) $(on_host): variant := -shim
$O/test/fault.so: tests/fault/preload.cc
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) $(sysroot) -std=c++20 -O2 $(warnings) -shared -fPIC -o $@ $<
# fp8-doctor of another version, for tests of hosts with different programs.
$O/test/other-doctor: INC := -Ilib/cli/include -Ilib/base/include -Ilib/json/include
$O/test/other-doctor: lib/cli/src/version.cc $(fp8-doctor.objs) $(fp8-doctor.libs)
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) $(CXXFLAGS) $(INC) -DFP8_VERSION='"0.0.0"' -DFP8_COMMIT='""' -o $@ $^ $(LDFLAGS) $(fp8-doctor.ld)
tests += $O/test/other-doctor
