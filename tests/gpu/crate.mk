about := Kernels, multiplications and whole steps on a GPU against the host; skipped where there is none
deps  := $(seen)
