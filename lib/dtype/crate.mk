about := Number formats: E4M3, E5M2, E8M0, BF16, F16 encoded, decoded and rounded, element by element and over arrays
deps  := base
hot   := %
