about := The calls of cuBLASLt, NCCL and the CUDA runtime with stand-ins for these libraries
deps  := base device dtype tensor quant gemm ops comm optim
pkgs  := cublaslt mpi nccl
