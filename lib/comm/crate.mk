about := Ranks, their mesh, and collectives on host and device buffers; one rank needs no MPI
deps  := base dtype device watchdog
pkgs  := mpi nccl
hot   := mpi_started
