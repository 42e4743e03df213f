about := Text from a checkpoint: sampling, and tokens one by one over a key/value cache
deps  := base dtype device tensor quant gemm ops hf prompt linear model
