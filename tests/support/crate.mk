about := What the tests of every crate share
deps  := base json dtype device quant comm ckpt hf data model shard tensor
