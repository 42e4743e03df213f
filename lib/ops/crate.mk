about := Norm, rope, attention, SwiGLU, embedding, cross-entropy: forward and backward
deps  := base dtype device tensor
pkgs  := cudnn
alone := tests/attention_cached_test
hot   := %
