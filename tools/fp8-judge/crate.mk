about := Which precision, recipe, temperature or checkpoint made the log-probabilities of a server or another trainer
deps  := base json cli comm model settings state train judge
