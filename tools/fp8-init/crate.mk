about := A new checkpoint from a model preset or a config.json, seeded
deps  := base json cli dtype h5 ckpt hf token model
