about := Weights to FP8 or FP4 codes and scales, what that lost in each, and back to weights that can be trained
deps  := base json cli dtype quant h5 ckpt hf model convert
