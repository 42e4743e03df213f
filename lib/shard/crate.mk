about := Sharded parameters: the rows of a rank, all-gather of weights, reduce-scatter of gradients, the model on a rank and its memory plan
deps  := base json cli dtype device tensor quant gemm ops comm optim ckpt hf data linear model
