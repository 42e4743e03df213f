# Sources named *.isa.cc, compiled once for each instruction set in `isas`.
isa.avx2        := -march=x86-64-v3
isa.avx512      := -march=x86-64-v4 -mprefer-vector-width=512
isa.avx512_bf16 := $(isa.avx512) -mavx512bf16
OBJCOPY         := $(or $(OBJCOPY),$(shell $(CXX) -print-prog-name=objcopy))
# Only the function table stays a global symbol. Otherwise the linker could use an inline function compiled for AVX-512 in other sources.
define isa_rule # $1 = instruction set
$O/%.$1.o: pch :=
$O/%.$1.o: cxx += $(isa.$1) $(isa_sanitize) -DFP8_ISA=$1
$O/%.$1.o: %.isa.cc $$$$(call changed,$$$$(cxx))
	@mkdir -p $$(@D)
	$$(call say,CXX ,$$< $1)$$(cxx) -MMD -MP -MT $$@ -MF $$(@:.o=.d) -c -o $$@.all $$< && \
	$$(CXX) -r -nostdlib -Wl,--force-group-allocation -o $$@ $$@.all && $$(OBJCOPY) --wildcard --keep-global-symbol='_ZN3fp8*KernelsE' $$@ && rm $$@.all
	$$(call record,$$(cxx))
endef
$(foreach i,$(isas),$(eval $(call isa_rule,$i)))
