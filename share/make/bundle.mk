# Makes a folder of programs and tests for a machine with a GPU and without a compiler. tests/gpu/all in the folder runs all GPU tests. Built in O,
# unless MARCH or CUDA are not the default. check-device-bundle makes it and runs it here, as far as that is possible without a GPU.
bundle_o := $O$(if $(and $(filter 1,$(CUDA)),$(filter file,$(origin MARCH))),,/device)
bundle   := $(or $(BUNDLE),$O/device-bundle)
device-bundle:
	@$(MAKE) --no-print-directory O=$(bundle_o) MARCH=$(if $(x86),x86-64-v3) CUDA=1 all $(bundle_o)/test/gpu_test
	@O=$(abspath $(bundle_o)) tests/gpu/bundle $(bundle)
check-device-bundle: device-bundle
	@tests/gpu/try_bundle $(bundle)
.PHONY: device-bundle check-device-bundle
