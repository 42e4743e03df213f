about := Summarizes, follows, compares, plots and exports the logs of runs
deps  := base json cli plot log
