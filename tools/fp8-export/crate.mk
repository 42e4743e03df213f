about := A checkpoint as a Hugging Face folder in BF16, FP8 or FP4
deps  := base json cli dtype h5 ckpt hf token chat model convert
