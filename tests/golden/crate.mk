about := Tests against reference values from PyTorch, torchao and transformers
deps  := $(seen)
