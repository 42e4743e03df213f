about := Summarizes, compares, plots and exports the logs of runs
deps  := base json cli log
