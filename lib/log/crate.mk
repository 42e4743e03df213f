about := Reads, summarizes, compares, plots and exports the logs of runs
deps  := base json
