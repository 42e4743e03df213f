about := Checkpoints from and to other forms: Hugging Face folders, padded, merged, quantized, dequantized, exported; described and compared
deps  := base json dtype device tensor quant h5 ckpt hf token chat model
