about := Text from a checkpoint: sampling, and tokens one by one over a key/value cache
deps  := base json dtype device tensor quant gemm ops ckpt hf prompt linear model
