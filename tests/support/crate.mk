about := What the tests of every crate share
deps  := base ckpt device dtype json train
