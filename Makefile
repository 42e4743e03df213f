# fp8: small Unix programs that train large language models in FP8.
# Rules of the build and of make check; share/make has those of other targets. The crate.mk of a crate holds its description, the crates it depends on
# and the packages it uses.
#   make            programs in build/bin            make check   all tests; installs missing packages first
#   make demo       from a text to a trained model   make lint    format, documentation, size and static analysis
#   make fuzz       fuzzes every parser              make bench   benchmarks
#   make check-hf   loads exported folders with transformers from PyPI
#   make check-cudnn   cuDNN plans attention for an H100 without a GPU
#   make check-cuda12  builds with the headers and the assembler of CUDA 12.9
# Variables: O=build WERROR=1 SAN=address,undefined MARCH=x86-64-v3 PREFIX=/usr/local DESTDIR= T=<part of a test's name> TIME=60 V=1 (print commands)
#   CUDA=0|1 (1 if nvcc is found), CUDA_ARCHS="90a 100a": the GPU architectures that device code is compiled for
#   SYSROOT=: the folder with libraries and packages of the CPU that CXX compiles for, if it is not that of this machine
O       ?= build
PREFIX  ?= /usr/local
MARCH   ?= $(if $(x86),x86-64-v3)
OPT     ?= -O3
NVCC    := $(or $(NVCC),$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc .cuda/bin/nvcc)))
CUDA    ?= $(if $(NVCC),1,0)
CUDA_ARCHS ?= 90a
OPENMP  ?= -fopenmp
TIME    ?= 60
VERSION := $(file <share/VERSION)
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
# One job per core, unless -j or the calling make sets the number. One job if the goals must run in order (make clean all).
in_order  := $(if $(word 2,$(MAKECMDGOALS)),$(filter-out all tests $O/%,$(MAKECMDGOALS)))
jobs      := $(if $(in_order)$(filter -j%,$(MAKEFLAGS) $(shell echo "$$MAKEFLAGS")),,-j$(shell OMP_NUM_THREADS= nproc))
MAKEFLAGS += --no-builtin-rules $(jobs)
# Prefix of a recipe line: prints the action and the file instead of the command, unless V=1 is set. make -s prints neither.
say = $(if $V$(findstring s,$(firstword -$(MAKEFLAGS))),,@$(info $1 $2))

# Bottom to top. A crate may depend only on crates to its left.
CRATES := base json cli dtype device tensor quant gemm ops watchdog comm optim h5 ckpt token hf chat data linear statistics model convert shard generate settings state train inspect plot log launch probe
TOOLS  := $(sort $(notdir $(patsubst %/,%,$(dir $(wildcard tools/*/crate.mk)))))

# Include paths and libraries of the packages, used for the crates that list them in `pkgs`.
multiarch     := $(shell $(CXX) -dumpmachine 2>/dev/null | sed 's/-pc-/-/')
x86           := $(filter x86_64-%,$(multiarch))
xxhash.lib    := -lxxhash
nlohmann.lib  :=
pcre2.lib     := -lpcre2-8
utf8proc.lib  := -lutf8proc
cxxopts.lib   :=
hdf5.inc      := -isystem $(SYSROOT)/usr/include/hdf5/serial
hdf5.lib      := -L$(SYSROOT)/usr/lib/$(multiarch)/hdf5/serial -lhdf5
dnnl.lib      := -ldnnl
mpi.inc       := -isystem $(SYSROOT)/usr/lib/$(multiarch)/openmpi/include
mpi.lib       := -L$(SYSROOT)/usr/lib/$(multiarch)/openmpi/lib -lmpi
cuda_home     := $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))
# Headers that the toolkit may lack: share/setup/cuda puts them here.
cuda_more     := .cuda/include
cuda.lib      := $(if $(filter 1,$(CUDA)),-L$(cuda_home)/lib64 -lcudart_static -ldl -lrt -lpthread)
benchmark.lib := -lbenchmark
gtest.lib     := -lgtest_main -lgtest

warnings := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wno-restrict $(if $(WERROR),-Werror)
sanitize := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# GCC makes constants of headers unique symbols under ASan, which objcopy leaves global in objects of *.isa.cc.
isa_sanitize := $(if $(SAN),$(if $(findstring clang,$(CXX)),,-fno-gnu-unique))
sysroot  := $(SYSROOT:%=--sysroot=%)
CXXFLAGS = $(sysroot) -std=c++20 $(OPT) -g1 $(MARCH:%=-march=%) -fno-math-errno -fno-trapping-math -ffp-contract=off $(OPENMP) $(warnings) $(sanitize) -ffile-prefix-map=$(CURDIR)=.
# Without -fmad=false, nvcc contracts products and sums to FMA, and device code would round differently from host code.
NVCCFLAGS = -std=c++20 -O3 -lineinfo -fmad=false --expt-relaxed-constexpr --extended-lambda $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$a,code=sm_$a) \
  $(if $(WERROR),-Werror all-warnings) -isystem $(cuda_more) -Xcompiler '$(MARCH:%=-march=%) -ffp-contract=off -fopenmp -Wall -Wextra -Wshadow $(sanitize) -ffile-prefix-map=$(CURDIR)=.'
# -z x86-64-v3 makes the dynamic loader refuse a CPU that lacks MARCH, before the program executes an instruction.
LDFLAGS  = $(sysroot) $(OPENMP) $(sanitize) -Wl,--as-needed $(patsubst %,-Wl$(comma)-z$(comma)%,$(filter x86-64-v%,$(MARCH)))
comma   := ,
# Sources named *.isa.cc are compiled once for each of these instruction sets, see fp8/base/cpu.h.
isas            := $(if $(x86),avx2 avx512 avx512_bf16,baseline)
isa.avx2        := -march=x86-64-v3
isa.avx512      := -march=x86-64-v4 -mprefer-vector-width=512
isa.avx512_bf16 := $(isa.avx512) -mavx512bf16
OBJCOPY         := $(or $(OBJCOPY),$(shell $(CXX) -print-prog-name=objcopy))

rev  = $(if $1,$(call rev,$(wordlist 2,$(words $1),$1)) $(firstword $1))
srcs = $(foreach d,$1,$(if $(filter 1,$(CUDA)),$(filter-out %_nocuda.cc,$(wildcard $d/*.cc)) $(wildcard $d/*.cu),$(wildcard $d/*.cc)))
objs_of = $(foreach s,$(basename $1),$(if $(filter %.isa,$s),$(isas:%=$O/$(s:.isa=).%.o),$O/$s.o))
objs = $(call objs_of,$(call srcs,$1))
define load # $1 = lib/<crate>, tools/<tool> or tests/<folder>
$(eval name := $(notdir $1)) $(eval deps :=) $(eval pkgs :=) $(eval about :=) $(eval include $1/crate.mk)
$(foreach d,$(deps),$(if $(filter $d,$(seen)),,$(error $1/crate.mk: '$d' is not a crate to the left of '$(name)' in CRATES)))
$(eval $(name).about := $(about)) $(eval $(name).deps := $(deps)) $(eval $(name).own := $(pkgs))
$(eval $(name).all  := $(filter $(deps) $(foreach d,$(deps),$($d.all)),$(seen)))
$(eval $(name).pkgs := $(sort $(pkgs) $(foreach d,$(deps),$($d.pkgs))))
$(eval $(name).inc  := $(foreach c,$(if $(filter lib/%,$1),$(name)) $($(name).all),-Ilib/$c/include) $(foreach p,$(pkgs),$($p.inc)))
$(eval $(name).libs := $(foreach c,$(call rev,$($(name).all)),$O/lib/$c.a))
$(eval $(name).ld   := $(foreach p,$($(name).pkgs),$($p.lib)))
$(if $(filter lib/%,$1),$(eval seen += $(name)))
endef

# Crates with CUDA kernels, whose tests run the kernels on the host with cuda_shim.
shimmed := dtype device tensor quant gemm ops optim
shim    := $O/tests/support/cuda_shim.o $O/tests/support/shim_memory.o
$(shim): INC := -Itests/support
# Sources are compiled with OPT in crates with loops over tensors, tokens or logs, and with -O2 in others and in tools, where -O3 only takes longer to compile.
hot     := json dtype tensor quant gemm ops comm optim token linear statistics log
src_opt  = $(if $(filter $1,$(hot)),$(OPT),-O2)
# Tests take longer to compile than to run, but for those that run kernels.
test_opt = $(if $(filter $1,$(shimmed) kernels),-O1,-O0)
define crate_rules # $1 = crate
$(eval $1.objs := $(call objs,lib/$1/src))$O/lib/$1.a: $($1.objs)
$(call objs,lib/$1/src lib/$1/bench): INC := $($1.inc) -Ilib/$1/src
$(call objs,lib/$1/src): OPT := $(call src_opt,$1)
$(patsubst %.cu,$O/%.o,$(wildcard lib/$1/src/*.cu)): INC := $($1.inc)
$(call objs,lib/$1/tests): INC := $($1.inc) -Ilib/$1/src -Itests/support
$(call objs,lib/$1/tests): OPT := $(call test_opt,$1)
$(call test_rule,$1_test,$(filter-out %_mpi_test.cc,$(call srcs,lib/$1/tests)),$1)
$(call test_rule,$1_mpi_test,$(wildcard lib/$1/tests/*_mpi_test.cc),$1)
$(call test_rule,$1_bench,$(wildcard lib/$1/bench/*.cc),$1)
endef
define test_rule # $1 = program, $2 = sources, $3 = crate
$(if $(strip $2),$O/test/$1: $(call objs_of,$2) $(if $(filter $3,$(shimmed)),$(shim)) $O/lib/$3.a $($3.libs)
$O/test/$1: LD := $($3.ld) $(if $(findstring bench,$1),$(benchmark.lib),$(if $(findstring mpi,$1),-lgtest,$(gtest.lib)))
tests += $O/test/$1)
endef
define suite_rules # $1 = folder in tests that contains a test program, $2 = include flags for headers of other tests
$(call load,tests/$1)
$(call test_rule,$1_test,$(wildcard tests/$1/*_test.cc),$1)
$(patsubst %.cc,$O/%.o,$(wildcard tests/$1/*_test.cc)): INC := $($1.inc) $2 -Itests/support
$(patsubst %.cc,$O/%.o,$(wildcard tests/$1/*_test.cc)): OPT := $(call test_opt,$1)
endef
define tool_rules # $1 = tool
$O/bin/$1: $(call objs,tools/$1) $($1.libs)
$O/bin/$1: LD := $($1.ld)
$(call objs,tools/$1): INC := $($1.inc) -Itools/$1
$(call objs,tools/$1): OPT := $(call src_opt,$1)
endef

$(foreach c,$(CRATES),$(if $(wildcard lib/$c/crate.mk),$(eval $(call load,lib/$c))))
$(foreach t,$(TOOLS),$(eval $(call load,tools/$t)))
$(foreach c,$(seen),$(eval $(call crate_rules,$c)))
$(foreach t,$(TOOLS),$(eval $(call tool_rules,$t)))
$(eval $(call suite_rules,golden))
$(eval $(call suite_rules,fault,-Ilib/ckpt/tests))
$(eval $(call suite_rules,gpu))
# Sources with kernels compiled for the host, which are linked before the libraries that they replace parts of.
$(eval $(call suite_rules,kernels))
on_host := $(patsubst %.cc,$O/%.o,$(wildcard tests/kernels/*_on_host.cc))
$(on_host): INC := -Itests/kernels/include $(kernels.inc) -Itests/support
$O/test/kernels_test: $(on_host) $(shim)
$O/tests/fault/forge.o: INC := $(fault.inc) -Itests/support
$O/test/forge: LD := $(fault.ld)
$O/test/forge: $O/tests/fault/forge.o $(fault.libs)
# Each target in tests/fuzz is linked with libFuzzer by make fuzz, and all with replay.cc, which reads their corpora, by make check.
$(eval $(call load,tests/fuzz))
fuzz_targets := $(filter-out replay hdf5_repair,$(notdir $(basename $(wildcard tests/fuzz/*.cc))))
$(call objs,tests/fuzz): OPT := -O0
$(call objs,tests/fuzz): INC := $(fuzz.inc) -Ilib/ckpt/src -Ilib/log/src -Itests/support
$(eval $(call test_rule,fuzz_test,$(wildcard tests/fuzz/*.cc),fuzz))
define fuzz_rules # $1 = target
$O/tests/fuzz/$1.o: INC += $(if $(findstring fuzzer,$(SAN)),,-DFP8_REPLAY=$1)
$O/fuzz/$1: LD := $(fuzz.ld) -fsanitize=fuzzer
$O/fuzz/$1: $O/tests/fuzz/$1.o $O/tests/fuzz/hdf5_repair.o $(fuzz.libs)
endef
$(foreach t,$(fuzz_targets),$(eval $(call fuzz_rules,$t)))
programs := $(TOOLS:%=$O/bin/%)

all: $(programs)
tests: $(tests) $O/test/fault.so $O/test/forge
# The .d file of an object names the command that compiled it. The object is compiled again if the command has changed, whatever else has changed in
# the makefiles. The commit in DEFS is not compared, so that a commit alone rebuilds nothing.
cxx      = $(CXX) $(CXXFLAGS) $(pch:%=-Winvalid-pch -include %) $(INC)
nvcc     = $(NVCC) $(NVCCFLAGS) $(INC)
cuda_cxx = $(CXX) $(CXXFLAGS) -isystem $(cuda_more) -isystem $(cuda_home)/include $(INC)
changed  = $(if $(findstring |$(made.$@)|,|$(strip $1)|),,changed)
record   = @printf '%s\n' '$(subst ','\'',made.$@ := $(strip $1))' >>$(basename $@).d
changed:
.SECONDEXPANSION:
$O/lib/%.a: $$(call changed,$$($$*.objs))
	@mkdir -p $(@D)
	@rm -f $@ $(@:.a=.d)
	$(call say,AR  ,$(@:$O/%=%))$(AR) rcsD $@ $($*.objs)
	$(call record,$($*.objs))
$O/bin/%:
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(LD)
$O/test/% $O/fuzz/%:
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(LD)
$O/test/fault.so: tests/fault/preload.cc
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) $(sysroot) -std=c++20 -O2 $(warnings) -shared -fPIC -o $@ $<
$O/%.o: %.cc $$(addsuffix .gch,$$(pch)) $$(call changed,$$(cxx))
	@mkdir -p $(@D)
	$(call say,CXX ,$<)$(cxx) $(DEFS) -MMD -MP -c -o $@ $<
	$(call record,$(cxx))
# Only the function table stays a global symbol. Otherwise the linker could use an inline function compiled for AVX-512 in other sources.
define isa_rule # $1 = instruction set
$O/%.$1.o: cxx += $(isa.$1) $(isa_sanitize) -DFP8_ISA=$1
$O/%.$1.o: %.isa.cc $$$$(call changed,$$$$(cxx))
	@mkdir -p $$(@D)
	$$(call say,CXX ,$$< $1)$$(cxx) -MMD -MP -MT $$@ -MF $$(@:.o=.d) -c -o $$@.all $$< && \
	$$(CXX) -r -nostdlib -Wl,--force-group-allocation -o $$@ $$@.all && $$(OBJCOPY) --wildcard --keep-global-symbol='_ZN3fp8*KernelsE' $$@ && rm $$@.all
	$$(call record,$$(cxx))
endef
$(foreach i,$(isas),$(eval $(call isa_rule,$i)))
$O/%.o: %.cu $$(call changed,$$(nvcc))
	@mkdir -p $(@D)
	$(call say,NVCC,$<)$(nvcc) -MMD -MP -c -o $@ $<
	$(call record,$(nvcc))
# Sources that run kernels in the shim call the checks of tests/support/shim_memory.h at each access to memory. AddressSanitizer excludes these flags.
in_shim := $(patsubst %.cc,$O/%.o,$(shell grep -l '"cuda_shim.h"' lib/*/tests/*.cc)) $(on_host)
$(in_shim): CXXFLAGS += $(if $(SAN),,-fsanitize=thread,alignment)
$(in_shim): variant := -shim
# .cu files without device code are compiled by the host compiler, which parses them once; nvcc parses them twice. The headers of the cuDNN frontend
# take most of a minute to compile and contain no hot code, hence -O1. They include <cuda.h>, as clang does before each .cu file, which must not be
# found as lib/ops/src/cuda.h: .cu files have no -I for the folder in which they are.
host_cuda := device/src/memory_cuda gemm/src/cublaslt_plan gemm/tests/cublaslt_test comm/src/nccl_library ops/src/attention_cudnn ops/tests/attention_cudnn_test
$(host_cuda:%=$O/lib/%.o): $O/%.o: %.cu $$(call changed,$$(cuda_cxx))
	@mkdir -p $(@D)
	$(call say,CXX ,$<)$(cuda_cxx) -MMD -MP -x c++ -c -o $@ $<
	$(call record,$(cuda_cxx))
cudnn_objs := $O/lib/ops/src/attention_cudnn.o $O/lib/ops/tests/attention_cudnn_test.o
$(cudnn_objs): OPT := -O1
$O/lib/ops/tests/attention_cudnn_test.o: INC := $(ops.inc) -Itests/support
$(cudnn_objs): $(cuda_more)/cudnn_frontend.h
$(cuda_more)/cudnn_frontend.h:
	$(error the headers of the cuDNN frontend are missing: run make setup to download them, or build with make CUDA=0)
$O/lib/cli/src/version.o: DEFS = -DFP8_VERSION='"$(VERSION)"' -DFP8_COMMIT='"$(shell git rev-parse --short=12 HEAD 2>/dev/null)"'
$O/lib/cli/src/version.o: share/VERSION
-include $(shell find $O -name '*.d' 2>/dev/null)

graph:
	$(foreach c,$(seen),$(info $(shell printf %-8s $c) $($c.about))$(info $(empty)         uses: $(or $($c.deps),nothing)$(if $($c.own),; packages: $($c.own))))
	$(foreach t,$(TOOLS),$(info $(shell printf %-14s $t) $($t.about)))@:

# Tests. check-SUITE runs one suite; check and demo install missing packages first.
export BIN := $(abspath $O)/bin
setup:
	@share/setup/packages
	@$(if $(filter 1,$(CUDA)),share/setup/cuda)
demo check: setup
	@$(MAKE) --no-print-directory $@-now
check-now: all tests
	@O=$(abspath $O) T='$T' tests/run unit mpi cli man fault $(if $(filter 1,$(CUDA)),sass) lint
check-%: all tests
	@O=$(abspath $O) T='$T' FAULTS=$(or $(FAULTS),all) tests/run $*
demo-now: all
	@examples/1-demo/run.sh
lint:
	@O=$(abspath $O) tests/lint/run
golden:
	@tests/golden/recompute
bench: all tests
	@O=$(abspath $O) tests/bench/run

dist:
	git archive --prefix=fp8-$(VERSION)/ -o fp8-$(VERSION).tar.gz HEAD
clean:
	rm -rf $O
include $(sort $(wildcard share/make/*.mk))
.PHONY: all tests changed graph setup demo check check-now demo-now lint golden bench dist clean
