about := A new checkpoint from a model preset or a config.json, seeded
deps  := base json cli dtype ckpt hf model
