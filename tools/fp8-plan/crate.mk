about := Memory, speed and communication of a run on ranks that need not exist; whether FP8 pays
deps  := base json cli h5 model settings plan plot
