about := Whole models on a device of which the host takes the part: launches, bytes and FLOPs of the kernels of a step
deps  := base json device dtype tensor quant gemm ops linear comm optim h5 hf model shard train
