about := Trains: optimizer steps under mpirun, sharded, in fp32, bf16 or FP8; records on standard output, checkpoints in --out
deps  := base json cli comm dtype quant optim data model settings state train
