about := Loss and perplexity of a checkpoint on a token file, in fp32, bf16 or as FP8
deps  := base json cli comm model settings state train
