about := Reads, summarizes, follows, compares and exports the logs of runs, and makes the data of their plots
deps  := base json plot
hot   := collector piece points read
