about := Tests against reference values from PyTorch, torchao and transformers
deps  := $(seen)
alone := accumulate_test casts_test curves_test
