about := Norm, rope, attention, SwiGLU, embedding, cross-entropy: forward and backward
deps  := base dtype device tensor quant
pkgs  := cudnn
hot   := %
