about := Checkpoints: written, verified, committed, and read by rows whatever the ranks that wrote them
deps  := base json dtype h5
