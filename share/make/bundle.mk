# Makes a folder of programs and tests for a machine with a GPU and without a compiler. tests/gpu/all in the folder runs all GPU tests. Built in O,
# unless MARCH or CUDA are not the default, and a second time with CUDA 12.9 (cuda12.mk), for drivers before 580; CUDA12=0 leaves this build out.
# check-device-bundle makes the folder and runs it here, as far as that is possible without a GPU.
bundle_o := $O$(if $(and $(filter 1,$(CUDA)),$(filter file,$(origin MARCH))),,/device)
bundle   := $(or $(BUNDLE),$O/device-bundle)
bundled  := $(addprefix $O/portable/,$(addprefix bin/,fp8-bench fp8-doctor fp8-eval fp8-info fp8-init fp8-log fp8-step fp8-tokenize) test/gpu_test)
CUDA12  ?= 1
device-bundle:
	@$(MAKE) --no-print-directory O=$(bundle_o) MARCH=$(if $(x86),x86-64-v3) CUDA=1 bundled
ifeq ($(CUDA12),1)
	@share/setup/cuda12 || { echo "device-bundle: with CUDA12=0 the bundle has no build with CUDA 12.9" >&2 && exit 1; }
	@$(MAKE) --no-print-directory MARCH=$(if $(x86),x86-64-v3) $(call cuda12_make,$(bundle_o)-cuda12) bundled
endif
	@tests/gpu/bundle $(bundle) $(bundle_o) $(if $(filter 1,$(CUDA12)),$(bundle_o)-cuda12)
check-device-bundle: device-bundle $O/test/device-step
	@O=$(abspath $O) tests/gpu/try_bundle $(bundle)
bundled: $(bundled)
.PHONY: device-bundle check-device-bundle bundled
# Programs of the bundle have the objects of other programs, and start with the C library of another system, from glibc 2.34 on (tests/gpu/portable): they
# contain the libraries that this system has as archives, and find the others in ../libraries. -rpath is for these libraries' own libraries too, which needs
# the old tag. The symbols of archives are hidden from libraries, which use libstdc++ of the system that they run on.
loaded_mpi   := $O/tests/gpu/portable/mpi.o
later_glibc  := $O/tests/gpu/portable/glibc.o
$(loaded_mpi) $(later_glibc): INC := $(comm.inc)
portable_flags := -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../libraries'
portable.hdf5    := -L$(hdf5_dir) -l:libhdf5.a -l:libsz.a -l:libaec.a -l:libz.a
portable.pcre2   := -l:libpcre2-8.a
portable.utf8proc := -l:libutf8proc.a
portable.xxhash  := -l:libxxhash.a
portable.mpi     :=
portable_ld = $(foreach p,$1,$(if $(filter undefined,$(origin portable.$p)),$($p.lib),$(portable.$p)))
$(filter $O/portable/bin/%,$(bundled)): $O/portable/bin/%: $$($$*.objs) $$(if $$(filter mpi,$$($$*.pkgs)),$(loaded_mpi)) $$($$*.libs)
$O/portable/bin/%: LD = $(call portable_ld,$($*.pkgs))
$O/portable/test/gpu_test: $$(gpu_test.objs) $(loaded_mpi) $$(gpu.libs)
$O/portable/test/gpu_test: LD = $(call portable_ld,$(gpu.pkgs)) $(gtest.lib)
$(bundled): $(later_glibc)
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(portable_flags) $(LD)
# tests/mpi/portable.t starts these programs. The other program has the cases of comm_mpi_test with the functions of MPI that programs of the bundle have.
tests += $O/test/comm_loaded_mpi_test $(if $(SAN)$(SYSROOT),,$O/portable/bin/fp8-step $O/portable/bin/fp8-doctor)
$O/test/comm_loaded_mpi_test: $(comm_mpi_test.objs) $(loaded_mpi) $O/lib/comm.a $(comm.libs)
$O/test/comm_loaded_mpi_test: LD := $(call portable_ld,$(comm.pkgs)) -lgtest
