about := Errors with exit codes, the instruction set of loops, checked arithmetic, Student's t distribution, digests, atomic commit of files and folders, text safe for a terminal
pkgs  := xxhash
