/// Comparisons of sides: fp8-log --compare.
#pragma once

#include <functional>
#include <string>

#include "fp8/cli/arguments.h"
#include "fp8/plot/plot.h"

namespace fp8::report {

/// Prints the comparison of every side with the first. Returns the exit status: 1 if there is a gate that a side does
/// not meet. Throws Error when runs cannot be compared, or differ in settings that a gate checks.
int compare(const cli::Arguments& arguments);

/// Draws a metric of all sides, or the gaps as dots and intervals, in the terminal or into --output. The output has
/// been checked.
void draw_comparison(const cli::Arguments& arguments);

/// Draws a picture with --ylim and --log in the terminal or into --output, which has been checked.
void draw_picture(const cli::Arguments& arguments, plot::Picture picture);

/// Draws the picture that `draw` writes into --output, which appears when it is complete.
void write_image(const cli::Arguments& arguments,
                 const std::function<void(plot::Image image, const std::string& path)>& draw);

}  // namespace fp8::report
