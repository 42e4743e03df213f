about := Matrix multiply under every kind of scale, plans cached, executed GEMMs and FLOPs counted by role and operand format
deps  := base dtype device tensor
pkgs  := dnnl cublaslt
hot   := %.isa blocks epilogue host row_products tensor_core varying
