about := One linear layer under any recipe: its three GEMMs
deps  := base dtype device tensor quant gemm ops
alone := tests/amax_test tests/groups_test tests/linear_test tests/tensor_parallel_test
