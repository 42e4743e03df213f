about := A training run: one step, evaluation, samples, records
deps  := base json cli dtype device tensor quant gemm ops watchdog comm optim h5 ckpt hf chat data linear statistics model convert shard generate settings state
