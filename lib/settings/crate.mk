about := The settings of a run, an evaluation and an inspection: flags, configurations, checks, adapters
deps  := base json cli dtype device quant gemm ops comm optim ckpt hf data model convert shard
