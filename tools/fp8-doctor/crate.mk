about := Says whether FP8 can run on this machine, and what to do where something is missing
deps  := base json cli comm train probe
