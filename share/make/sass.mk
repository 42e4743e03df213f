# Machine code of the kernels against the budgets in tests/sass/budgets.
device_code := $(filter-out $(host_cuda:%=lib/%),$(basename $(wildcard lib/*/src/*.cu)))
check-sass:
	@share/setup/cuda
	@$(MAKE) --no-print-directory CUDA=1 $(device_code:%=$O/%.o)
	@tests/sass/run $O
.PHONY: check-sass
