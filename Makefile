# fp8: small Unix programs that train large language models in FP8.
# Rules of the build and of make check; share/make has those of other targets, CUDA, instruction sets and test programs. The crate.mk of a crate holds
# its description, the crates it depends on and the packages it uses.
#   make            programs in build/bin            make check   tests; installs missing packages first
#   make check-long  all tests: make check leaves out cases that take long, and prints how many
#   make demo       from a text to a trained model   make lint    format, documentation, size and static analysis
#   make fuzz       fuzzes every parser              make bench   benchmarks
#   make check-cluster   trains under Slurm and mpirun on four nodes, which are namespaces of this machine
#   make check-hf   loads exported folders with transformers from PyPI, and trains beside its Trainer
#   make check-cudnn   cuDNN plans attention for an H100 without a GPU
#   make check-cuda12  builds with the headers and the assembler of CUDA 12.9
# Variables: O=build WERROR=1 SAN=address,undefined MARCH=x86-64-v3 PREFIX=/usr/local DESTDIR= T=<part of a test's name> TIME=60 V=1 (print commands)
#   CUDA=0|1 (1 if nvcc is found), CUDA_ARCHS="90a 100a": the GPU architectures that device code is compiled for
#   SYSROOT=: the folder with libraries and packages of the CPU that CXX compiles for, if it is not that of this machine
O       ?= build
# A folder below this one has one name, relative, so that a command that names it in another way compiles nothing again.
override O := $(patsubst $(CURDIR)/%,%,$O)
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
in_order  := $(if $(word 2,$(MAKECMDGOALS)),$(filter-out all tests benches $O/%,$(MAKECMDGOALS)))
jobs      := $(if $(in_order)$(filter -j%,$(MAKEFLAGS) $(shell echo "$$MAKEFLAGS")),,-j$(shell OMP_NUM_THREADS= nproc))
MAKEFLAGS += --no-builtin-rules $(jobs)
# Prefix of a recipe line: prints the action and the file instead of the command, unless V=1 is set. make -s prints neither.
say = $(if $V$(findstring s,$(firstword -$(MAKEFLAGS))),,@$(info $1 $2))

# Bottom to top. A crate may depend only on crates to its left.
CRATES := base json cli dtype device tensor quant gemm ops watchdog comm optim h5 ckpt token hf chat data linear statistics model convert shard generate settings state train plan inspect plot log launch probe foreign judge
TOOLS  := $(sort $(notdir $(patsubst %/,%,$(dir $(wildcard tools/*/crate.mk)))))

# Include paths and libraries of the packages, used for the crates that list them in `pkgs`.
multiarch     := $(shell $(CXX) -dumpmachine 2>/dev/null | sed 's/-pc-/-/')
x86           := $(filter x86_64-%,$(multiarch))
xxhash.lib    := -lxxhash
nlohmann.lib  :=
pcre2.lib     := -lpcre2-8
utf8proc.lib  := -lutf8proc
cxxopts.lib   :=
yaml.lib      := -lyaml-cpp
tomlplusplus.lib :=
hdf5.inc      := -isystem $(SYSROOT)/usr/include/hdf5/serial
# HDF5's archive, where there is one: its shared library reads from S3 too and needs libcurl and 27 more libraries, which take two thirds of a program's start.
hdf5_dir      := $(SYSROOT)/usr/lib/$(multiarch)/hdf5/serial
hdf5.lib      := -L$(hdf5_dir) $(if $(wildcard $(hdf5_dir)/libhdf5.a),-l:libhdf5.a -lsz -lz -ldl -lm,-lhdf5)
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
CXXFLAGS = $(sysroot) -std=c++20 $(OPT) -g1 $(MARCH:%=-march=%) -fno-math-errno -fno-trapping-math -ffp-contract=off $(OPENMP) $(warnings) \
  $(sanitize) -ffile-prefix-map=$(CURDIR)=.
# -z x86-64-v3 makes the dynamic loader refuse a CPU that lacks MARCH, before the program executes an instruction.
LDFLAGS  = $(sysroot) $(OPENMP) $(sanitize) -Wl,--as-needed $(patsubst %,-Wl$(comma)-z$(comma)%,$(filter x86-64-v%,$(MARCH)))
comma   := ,
# Sources named *.isa.cc are compiled once for each of these instruction sets, see fp8/base/cpu.h.
isas            := $(if $(x86),avx2 avx512 avx512_bf16,baseline)

rev  = $(if $1,$(call rev,$(wordlist 2,$(words $1),$1)) $(firstword $1))
srcs = $(foreach d,$1,$(if $(filter 1,$(CUDA)),$(filter-out %_nocuda.cc,$(wildcard $d/*.cc)) $(wildcard $d/*.cu),$(wildcard $d/*.cc)))
objs_of = $(foreach s,$(basename $1),$(if $(filter %.isa,$s),$(isas:%=$O/$(s:.isa=).%.o),$O/$s.o))
objs = $(call objs_of,$(call srcs,$1))
define load # $1 = lib/<crate>, tools/<tool> or tests/<folder>
$(eval name := $(notdir $1)) $(eval deps :=) $(eval pkgs :=) $(eval about :=) $(eval hot :=) $(eval include $1/crate.mk)
$(foreach d,$(deps),$(if $(filter $d,$(seen)),,$(error $1/crate.mk: '$d' is not a crate to the left of '$(name)' in CRATES)))
$(eval $(name).about := $(about)) $(eval $(name).deps := $(deps)) $(eval $(name).own := $(pkgs))
$(eval $(name).hot := $(hot:%=$1/src/%.cc))
$(eval $(name).all  := $(filter $(deps) $(foreach d,$(deps),$($d.all)),$(seen)))
$(eval $(name).pkgs := $(sort $(pkgs) $(foreach d,$(deps),$($d.pkgs))))
$(eval $(name).inc  := $(foreach c,$(if $(filter lib/%,$1),$(name)) $($(name).all),-Ilib/$c/include) $(foreach p,$(pkgs),$($p.inc)))
$(eval $(name).libs := $(foreach c,$(call rev,$($(name).all)),$O/lib/$c.a))
$(eval $(name).ld   := $(foreach p,$($(name).pkgs),$($p.lib)))
$(if $(filter lib/%,$1),$(eval seen += $(name)))
endef

# Sources with loops over tensors, tokens or logs are `hot` in crate.mk and compiled with OPT, as are benchmarks. All others, of tests too, have -O1:
# -O2 only takes longer to compile.
# Crates with CUDA kernels, whose tests run the kernels on the host with cuda_shim.
shimmed := dtype device tensor quant gemm ops optim
shim    := $O/tests/support/cuda_shim.o $O/tests/support/shim_memory.o
$(shim): INC := -Itests/support
define crate_rules # $1 = crate
$(eval $1.srcs := $(call srcs,lib/$1/src))
$(eval $1.objs := $(call objs_of,$($1.srcs)))$O/lib/$1.a: $($1.objs)
$(call objs,lib/$1/src lib/$1/bench): INC := $($1.inc) -Ilib/$1/src
$(call objs_of,$(filter-out $($1.hot),$($1.srcs))): OPT := -O1
$(patsubst %.cu,$O/%.o,$(wildcard lib/$1/src/*.cu)): INC := $($1.inc)
$(call test_rule,$1_test,$(filter-out %_mpi_test.cc,$(call srcs,lib/$1/tests)),$1)
$(call test_rule,$1_mpi_test,$(wildcard lib/$1/tests/*_mpi_test.cc),$1)
$(call objs,lib/$1/tests): INC := $($1.inc) -Ilib/$1/src -Itests/support
$(call objs,lib/$1/tests): OPT := -O1
$(call test_rule,$1_bench,$(wildcard lib/$1/bench/*.cc),$1)
endef
define test_rule # $1 = program, $2 = sources, $3 = crate
$(if $(strip $2),$(eval $1.objs := $(call objs_of,$2))$O/test/$1: $($1.objs) $(if $(filter $3,$(shimmed)),$(shim)) $O/lib/$3.a $($3.libs)
$O/test/$1: LD := $($3.ld) $(if $(findstring bench,$1),$(benchmark.lib),$(if $(findstring mpi,$1),-lgtest,$(gtest.lib)))
$(if $(filter %_bench,$1),benches,tests) += $O/test/$1)
endef
define tool_rules # $1 = tool
$(eval $1.objs := $(call objs,tools/$1))$O/bin/$1: $($1.objs) $($1.libs)
$O/bin/$1: LD := $($1.ld)
$($1.objs): INC := $($1.inc) -Itools/$1
$($1.objs): OPT := -O1
endef

$(foreach c,$(CRATES),$(if $(wildcard lib/$c/crate.mk),$(eval $(call load,lib/$c))))
$(foreach t,$(TOOLS),$(eval $(call load,tools/$t)))
$(foreach c,$(seen),$(eval $(call crate_rules,$c)))
$(foreach t,$(TOOLS),$(eval $(call tool_rules,$t)))
programs := $(TOOLS:%=$O/bin/%)

.SECONDEXPANSION:
include $(sort $(wildcard share/make/*.mk))

all: $(programs)
tests: $(tests) $O/test/fault.so $O/test/forge
benches: $(benches)
# The .d file of an object names the command that compiled it. The object is compiled again if the command has changed, whatever else has changed in
# the makefiles. The commit in DEFS is not compared, so that a commit alone rebuilds nothing.
cxx      = $(CXX) $(CXXFLAGS) $(use_pch) $(INC)
changed  = $(if $(findstring |$(made.$@)|,|$(strip $1)|),,changed)
record   = @printf '%s\n' '$(subst ','\'',made.$@ := $(strip $1))' >>$(basename $@).d
changed:
$O/lib/%.a: $$(call changed,$$($$*.objs))
	@mkdir -p $(@D)
	@rm -f $@ $(@:.a=.d)
	$(call say,AR  ,$(@:$O/%=%))$(AR) rcsD $@ $($*.objs)
	$(call record,$($*.objs))
$O/bin/% $O/test/% $O/fuzz/%:
	@mkdir -p $(@D)
	$(call say,LINK,$(@:$O/%=%))$(CXX) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(LD)
$O/%.o: %.cc $$(addsuffix .gch,$$(pch)) $$(call changed,$$(cxx))
	@mkdir -p $(@D)
	$(call say,CXX ,$<)$(cxx) $(DEFS) -MMD -MP -c -o $@ $<
	$(call record,$(cxx))
$O/lib/cli/src/version.o: DEFS = -DFP8_VERSION='"$(VERSION)"' -DFP8_COMMIT='"$(shell git rev-parse --short=12 HEAD 2>/dev/null)"'
$O/lib/cli/src/version.o: share/VERSION
-include $(shell find $O -name '*.d' 2>/dev/null)

graph:
	$(foreach c,$(seen),$(info $(shell printf %-8s $c) $($c.about))$(info $(empty)         uses: $(or $($c.deps),nothing)$(if $($c.own),; packages: $($c.own))))
	$(foreach t,$(TOOLS),$(info $(shell printf %-14s $t) $($t.about)))@:

# Tests. check-SUITE runs one suite; check and demo install missing packages first.
export BIN := $(abspath $O)/bin
# Packages of Debian and of Python are installed at the same time, unless those of Python need pip from Debian.
setup: setup-packages $(if $(filter 1,$(CUDA)),setup-cuda)
setup-packages:
	@share/setup/packages
setup-cuda: $(if $(shell command -v pip3 pip),,setup-packages)
	@share/setup/cuda
demo check check-long: setup
	@$(MAKE) --no-print-directory $@-now
# check-long also runs the tests and cases that take long, which check leaves out, and compiles benchmarks.
check-long-now: export FP8_LONG := 1
check-long-now: benches $(long_tests)
check-now check-long-now: all tests
	@O=$(abspath $O) T='$T' tests/run fault $(if $(filter 1,$(CUDA)),sass) lint unit mpi cli man cluster
check-%: all tests
	@O=$(abspath $O) T='$T' FAULTS=$(or $(FAULTS),all) tests/run $*
demo-now: all
	@examples/1-demo/run.sh
check-cluster: setup-cluster
setup-cluster:
	@share/setup/packages cluster
check-kills: all tests
	@O=$(abspath $O) T=mpi/kills.t KILLS=$(or $(KILLS),50) tests/run mpi
lint:
	@O=$(abspath $O) tests/lint/run
golden:
	@tests/golden/recompute
bench: all benches
	@O=$(abspath $O) tests/bench/run

dist:
	git archive --prefix=fp8-$(VERSION)/ -o fp8-$(VERSION).tar.gz HEAD
clean:
	rm -rf $O
.PHONY: all tests benches changed graph setup setup-packages setup-cuda setup-cluster demo check check-long check-now check-long-now check-kills demo-now lint golden bench dist clean
