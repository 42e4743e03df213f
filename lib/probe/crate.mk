about := Checks of a machine for FP8 (fp8-doctor) and measurements of its speed (fp8-bench)
deps  := base json dtype device tensor quant gemm ops comm optim h5 hf data linear model shard settings state train plan
