about := A Hugging Face folder or a checkpoint to an FP8-eligible checkpoint, with a compute precision for each linear
deps  := base json cli dtype quant h5 ckpt hf model convert
