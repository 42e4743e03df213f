about := A view has dtype, shape, strides and device over borrowed memory; a tensor owns its memory
deps  := base dtype device
hot   := %
