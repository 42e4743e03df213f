about := Inspection of a checkpoint: what FP8 does to a batch, recipe by recipe, bisection of two settings, recommendation
deps  := base json cli dtype device tensor quant gemm comm optim ckpt hf data linear statistics model convert shard settings state train
