about := Devices (host and CUDA), memory, arenas sized by a dry run, counter-based random numbers
deps  := base dtype
pkgs  := cuda
