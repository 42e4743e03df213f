about := Who owns which rows of each parameter; gathering them and scattering gradients
deps  := base dtype device tensor comm
