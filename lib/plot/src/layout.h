// Places of texts in a picture, in pixels from its upper left corner.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::plot {

// Size of the pictures' font, and of the smaller one, in pixels. A PNG's 12 points are 16 pixels; an SVG has 15.
inline constexpr double kFont = 16, kSmallFont = 14;

// Size of a picture.
struct Size {
  double width = 0, height = 0;
};

// Width of a text in DejaVu Sans.
double text_width(std::string_view text, double font);

// A text that is at most `width` wide; its middle becomes "..." if it is longer.
std::string fitted(const std::string& text, double width, double font);

// The names without the beginning that all share, up to a separator.
std::vector<std::string> without_shared_beginning(std::vector<std::string> names);

// A coordinate as gnuplot's `screen X,Y`.
std::string screen(double x, double y, const Size& size);

// A command for a label at a place. `options` are gnuplot's, such as its colour.
std::string label_at(const std::string& text, double x, double y, const Size& size, const std::string& options);

// An entry of a legend.
struct Entry {
  std::string name{};
  std::string line{};  // gnuplot's style of its line: width, dashes, colour
};

// A legend, and the height that it needs.
struct Legend {
  std::string script{};
  double height = 0;
};

// Entries from left to right in lines between `left` and `right`, below `top`. Long names are shortened so that there
// are at most three lines if possible.
Legend legend_of(const std::vector<Entry>& entries, double left, double right, double top, const Size& size);

// A label of a vertical line.
struct LineLabel {
  double x = 0;         // position of the line
  double width = 0;     // width of the text
  double from = 0;      // left end of the text
  std::size_t row = 0;  // from 0, the lowest one
};

// Rows for labels above a plot, such that no two overlap and none leaves [left, right]. The labels are ordered by x.
// Labels that need more than `rows` rows have no place.
std::vector<std::optional<LineLabel>> place_labels(const std::vector<LineLabel>& labels, double left, double right,
                                                   std::size_t rows);

}  // namespace fp8::plot
