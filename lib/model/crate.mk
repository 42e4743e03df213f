about := A decoder-only transformer: its parameters and their compute precisions, initialization, forward and backward
deps  := base json dtype device tensor quant gemm ops h5 ckpt hf linear
alone := tests/amax_test tests/cache_test tests/decoder_memory_test tests/decoder_test tests/operation_test tests/stages_test
aside := checkpoint initialize parameters presets record
