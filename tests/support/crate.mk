about := What the tests of every crate share
deps  := base json dtype device quant comm h5 ckpt hf data model shard tensor
