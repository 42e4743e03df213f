about := What FP8 does to each linear of a model on a batch
deps  := base json cli comm statistics model settings state train inspect
