about := What this machine can do and how fast: the checks of fp8-doctor, the measurements of fp8-bench
deps  := base json dtype device tensor quant gemm ops comm h5 hf data linear model train
