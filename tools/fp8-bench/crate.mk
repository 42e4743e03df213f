about := Measures FP8 against bf16 on this machine: the products of a model's linears with their casts, and whole steps
deps  := base json cli device hf quant model train plan probe
