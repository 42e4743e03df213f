about := A decoder-only transformer: its parameters and their compute precisions, initialization, forward and backward
deps  := base json dtype device tensor quant gemm ops h5 ckpt hf linear
