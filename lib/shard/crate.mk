about := Rows of each parameter that a rank owns; all-gather of weights and reduce-scatter of gradients
deps  := base dtype device tensor comm
