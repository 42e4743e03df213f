about := Text from a checkpoint: prompts and conversations as tokens, sampling, tokens one by one over a key/value cache, their text
deps  := base json dtype device tensor quant gemm ops ckpt hf token chat linear model convert
