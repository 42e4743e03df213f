about := Plans of runs on ranks that need not exist: memory of the rank that needs the most, time of a step on a machine
deps  := base json cli dtype device tensor quant gemm ops comm optim ckpt hf data model convert shard settings state train
