// Running of gnuplot, and what its scripts share.
#pragma once

#include <string>

#include "fp8/plot/plot.h"

namespace fp8::plot {

// A string in gnuplot's double quotes, safe for a terminal.
std::string quoted(const std::string& text);

// A round distance of marks on an axis, such that there are at most six.
double step_of(double range);

// The lines of a script that set encoding and terminal, in pixels.
std::string terminal_of(Image image, int width, int height);

// Runs a script and writes the image that it prints into the existing file `path`. Throws as gnuplot_plot().
void run_gnuplot(const std::string& script, Image image, const std::string& path);

}  // namespace fp8::plot
