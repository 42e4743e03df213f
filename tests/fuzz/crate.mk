about := Fuzz targets for every parser
deps  := base json cli dtype h5 ckpt hf token chat data generate log launch foreign judge
