about := The folder of a run: its lock, its log, and its checkpoints, which are saved, verified and loaded
deps  := base json cli dtype device tensor ckpt comm hf model convert shard settings
