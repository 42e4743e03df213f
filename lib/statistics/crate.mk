about := Statistics of the operands and results of FP8 GEMMs, and differences of results
deps  := base json dtype device tensor quant gemm ops watchdog comm linear
hot   := collector figures
