about := Faults: kills at every write, disks that fail, damaged files
deps  := ckpt h5
