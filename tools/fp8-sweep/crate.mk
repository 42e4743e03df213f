about := Runs every combination of the values and sides of a file: many runs, each on cores of its own, and their table
deps  := base json cli h5 launch
