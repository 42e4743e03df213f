# Loads exported folders with transformers, compressed-tensors and PEFT from PyPI.
check-hf: all
	@O=$(abspath $O) T='$T' tests/hf/run
.PHONY: check-hf
