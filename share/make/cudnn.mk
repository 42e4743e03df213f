# cuDNN from PyPI plans attention for an H100, with a stand-in for the driver. check-long tests the graphs alone, with the cuDNN that is installed.
check-cudnn:
	@share/setup/cuda
	@$(MAKE) --no-print-directory $O/test/cudnn_plans
	@O=$(abspath $O) tests/cudnn/run
cudnn_objs := $O/tests/cudnn/plans.o $O/tests/cudnn/graphs_test.o
$(cudnn_objs): $(cuda_more)/cudnn_frontend.h
$(cudnn_objs): OPT := -O1
$(cudnn_objs): INC := $(ops.inc) -Itests/support -isystem $(cuda_more) -isystem $(cuda_home)/include
$O/test/cudnn_plans $O/test/cudnn_graphs_test: $O/lib/ops.a $(ops.libs)
$O/test/cudnn_plans: LD := $(ops.ld)
$O/test/cudnn_plans: $O/tests/cudnn/plans.o
$O/test/cudnn_graphs_test: LD := $(ops.ld) $(gtest.lib)
$O/test/cudnn_graphs_test: $O/tests/cudnn/graphs_test.o
long_tests += $(if $(filter 1,$(CUDA)),$O/test/cudnn_graphs_test)
.PHONY: check-cudnn
