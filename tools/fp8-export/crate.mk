about := A checkpoint as a Hugging Face folder in BF16 or FP8
deps  := base json cli dtype h5 ckpt hf token chat model convert
