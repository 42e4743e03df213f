about := One linear layer under any recipe: its three GEMMs
deps  := base dtype device tensor quant gemm ops
