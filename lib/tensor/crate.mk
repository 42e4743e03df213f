about := A view is dtype, shape, strides and place over memory someone else owns; a tensor owns its memory
deps  := base dtype device
