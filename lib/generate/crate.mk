about := Text from a checkpoint: prompts, sampling, text of tokens as they arrive, stop texts
deps  := base json dtype device tensor quant gemm ops ckpt hf token chat linear model
