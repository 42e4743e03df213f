about := A training run: sharded parameters, one step, evaluation, checkpoints, records
deps  := base json cli dtype device tensor quant gemm ops watchdog comm optim shard h5 ckpt hf prompt data linear inspect model generate
