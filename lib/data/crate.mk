about := Token files: made from text, JSON Lines and raw ids, sampled sequentially or by a keyed permutation
deps  := base json dtype h5 ckpt hf token chat
