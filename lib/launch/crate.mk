about := Runs a training command to its end: plans, attempts, running and signalling a process (fp8-resume)
deps  := base json ckpt
