about := What a checkpoint holds; verifies it; compares two
deps  := base json cli h5 ckpt hf data model convert
