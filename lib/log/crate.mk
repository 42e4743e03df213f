about := Reads, summarizes, follows, compares, plots and exports the logs of runs
deps  := base json
