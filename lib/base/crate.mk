about := Errors with exit codes, checked arithmetic, digests, atomic commit of files and folders, text safe for a terminal
pkgs  := xxhash
