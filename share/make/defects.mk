# Defects that training systems had are put into copies of sources, one at a time; the comparison of gradients must show each. The product has no hooks
# for them: a copy is compiled and linked before the library that it replaces a part of.
check-defects: $O/bin/fp8-step $O/bin/fp8-convert $O/bin/fp8-export $O/bin/fp8-info $O/bin/fp8-init $O/bin/fp8-tokenize $(if $(filter 1,$(CUDA)),$O/test/device-step)
	@O=$(abspath $O) CXX='$(CXX) $(CXXFLAGS) -O1 $(train.inc)' LINK='$(CXX) $(LDFLAGS)' OBJECTS='$(fp8-step.objs)' \
	  LIBRARIES='$(fp8-step.libs) $(fp8-step.ld)' DEVICE_CXX='$(device_cxx)' DEVICE_OBJECTS='$(device_step)' \
	  DEVICE_LIBRARIES='$(device_ld)' T='$T' tests/defects/run
.PHONY: check-defects
