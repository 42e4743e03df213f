# cuDNN from PyPI plans attention for an H100, with a stand-in for the driver.
check-cudnn:
	@share/setup/cuda
	@$(MAKE) --no-print-directory $O/test/cudnn_plans
	@O=$(abspath $O) tests/cudnn/run
$O/tests/cudnn/plans.o: OPT := -O0
$O/tests/cudnn/plans.o: INC := $(ops.inc) -Itests/support -isystem $(cuda_more) -isystem $(cuda_home)/include
$O/test/cudnn_plans: LD := $(ops.ld)
$O/test/cudnn_plans: $O/tests/cudnn/plans.o $O/lib/ops.a $(ops.libs)
.PHONY: check-cudnn
