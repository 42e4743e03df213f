about := Runs a training command to its end: phases, attempts, running and signalling a process (fp8-resume), and many of them (fp8-sweep)
deps  := base json ckpt
