about := A configuration of another trainer as one of fp8-step, with the commands that run it; every key answered
deps  := base json cli h5 settings foreign
