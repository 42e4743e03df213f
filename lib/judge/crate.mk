about := Log-probabilities of a server or another trainer against each precision, and what explains their difference (fp8-judge)
deps  := base json cli dtype device tensor gemm comm ckpt hf model shard settings state train plot
hot   := logits figures
