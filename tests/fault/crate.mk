about := Faults: kills at every write, disks that fail, damaged files
deps  := base json ckpt h5
