about := Scaling recipes as data: amax to scale to codes, along rows or columns
deps  := base dtype device tensor
hot   := %
