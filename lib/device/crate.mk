about := Where work runs: host or CUDA device, memory, arenas planned by a dry run, counter-based random numbers
deps  := base
pkgs  := cuda
