about := Text that a checkpoint generates from prompts
deps  := base json cli dtype quant gemm h5 ckpt hf token chat data model convert generate
