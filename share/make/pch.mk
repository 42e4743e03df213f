# Standard headers, share/pch/std.h, precompiled once per set of flags. The compiler reads them before each source, and would not miss an #include
# that a source lacks. Builds with PCH=0 find it: with a compiler cache or clang, in make check-aarch64 and in make lint. Sources for one
# instruction set have none (isa.mk). GCC 12 warns wrongly about copies of strings that it inlines from them; builds with PCH=0 have these warnings.
# Made as a prerequisite of an object, from which make takes OPT and CXXFLAGS; therefore the name has what differs between objects, and other flags
# of one object are private.
PCH    ?= $(if $(filter ccache clang%,$(notdir $(CXX))),0,$(if $(filter %g++,$(CXX)),1,0))
pch     = $(if $(filter 1,$(PCH)),$O/pch/std$(OPT)$(variant).h)
use_pch = $(pch:%=-Winvalid-pch -include % -Wno-stringop-overflow -Wno-array-bounds)
pch_cxx = $(CXX) $(CXXFLAGS)
$O/pch/%.h.gch: share/pch/std.h $$(call changed,$$(pch_cxx))
	@mkdir -p $(@D)
	$(call say,PCH ,$(@:$O/%=%))cp $< $(basename $@) && $(pch_cxx) -MMD -MP -MF $(basename $@).d -x c++-header -o $@ $<
	$(call record,$(pch_cxx))
.PRECIOUS: $O/pch/%.h.gch
