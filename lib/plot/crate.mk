about := Draws series, gaps and heatmaps on a terminal, and as SVG and PNG through gnuplot
deps  := base
