about := Runs a training command to the end of its run: newest valid checkpoint, precision phases, again after a crash
deps  := base json cli h5 launch
