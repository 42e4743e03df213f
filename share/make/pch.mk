# Precompiled headers: share/pch/std.h for sources and for what tests need at -O3, share/pch/test.h for tests, one of each per set of flags. The compiler
# reads them before each source, and would not miss an #include that a source lacks. Builds with PCH=0 find it: with a compiler cache, which cannot store
# what is compiled with them, in make check-aarch64 and in make lint. Sources for one instruction set have none (isa.mk). GCC 12 warns wrongly about copies of
# strings that it inlines from them at -O3; builds with PCH=0 have these warnings.
# Made as a prerequisite of an object, from which make takes OPT and CXXFLAGS; therefore the name has what differs between objects, and other flags of
# one object are private.
pch     = $(if $(filter 1,$(PCH)),$O/pch/$(if $(and $(findstring /tests/,$(@:$O/%=/%)),$(filter-out -O3,$(OPT))),test,std)$(OPT)$(variant).h)
use_pch = $(pch:%=-Winvalid-pch -include %) $(if $(findstring -O3,$(pch)),-Wno-stringop-overflow -Wno-array-bounds)
# GCC collects garbage from this many KiB on, which takes a tenth of its time: one source needs less, or little more.
heap    = $(if $(filter 1,$(PCH)),$(if $(clang_flags),,--param ggc-min-heapsize=500000))
# What has -O0, which are tests, is compiled by Clang 14 where it is installed beside g++: it takes three fifths of the time. With PCH=0 g++ compiles it.
clang    := $(if $(and $(filter 1,$(PCH)),$(filter g++,$(notdir $(CXX)))),$(if $(SAN)$(SYSROOT),,$(shell command -v clang++-14)))
compiler  = $(if $(clang_flags),$(clang),$(CXX))
clang_flags = $(if $(filter -O0,$(OPT)),$(if $(clang),-fopenmp-simd $(warnings) -Wno-unknown-warning-option -Wno-sign-conversion))
pch_cxx = $(compiler) $(CXXFLAGS) $(heap)
pch_of  = share/pch/$(firstword $(subst -, ,$*)).h
$O/pch/%.h.gch: $$(pch_of) $$(call changed,$$(pch_cxx))
	@mkdir -p $(@D)
	$(call say,PCH ,$(@:$O/%=%))cp $(pch_of) $(basename $@) && $(pch_cxx) -MMD -MP -MF $(basename $@).d -x c++-header -o $@ $(pch_of)
	$(call record,$(pch_cxx))
.PRECIOUS: $O/pch/%.h.gch
