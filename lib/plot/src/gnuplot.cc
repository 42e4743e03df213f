// SVG and PNG through gnuplot. The script is passed on standard input, so no shell and no path needs quoting. The image
// is read from standard output, since gnuplot does not report a full disk.
#include "gnuplot.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/program.h"
#include "fp8/base/text.h"

namespace fp8::plot {
namespace {

std::string first_error(const std::string& text) {
  // gnuplot prints the line, a caret, then "line N: " and the reason.
  const std::size_t at = text.rfind("line ");
  std::string error = at == std::string::npos ? text : text.substr(at);
  error.erase(std::min(error.find('\n'), error.size()));
  return error;
}

}  // namespace

Image image_of(const std::string& path) {
  if (path.ends_with(".svg")) return Image::svg;
  if (path.ends_with(".png")) return Image::png;
  throw Error(path + ": the name of a plot must end in .svg or .png");
}

// Only the three special characters are escaped; a backquote would run a command.
// Octal escapes of other characters are wrong: gnuplot reads up to four digits after "\0", including digits of the
// text. Single quotes are wrong: gnuplot 5.4 does not accept a doubled quote at the beginning of the text.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : terminal_safe(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '`' ? "\\140" : std::string(1, c);
  }
  return out + "\"";
}

double step_of(double range) {
  constexpr double kMost = 6;
  const double unit = std::pow(10.0, std::floor(std::log10(range / kMost)));
  for (const double round : {1.0, 2.0, 5.0})
    if (round * unit * kMost >= range) return round * unit;
  return 10 * unit;
}

std::string terminal_of(Image image, int width, int height) {
  return std::string("set encoding utf8\nset terminal ") +
         (image == Image::svg ? "svg font 'DejaVu Sans,15'" : "pngcairo font 'DejaVu Sans,12'") + " size " +
         std::to_string(width) + "," + std::to_string(height) + " noenhanced background rgb '#ffffff'\n";
}

void run_gnuplot(const std::string& script, Image image, const std::string& path) {
  const std::optional<ProgramResult> run = run_program({"gnuplot", "-d"}, script);  // -d: no settings
  if (!run) throw Error("gnuplot: not installed; without -o the plot is drawn in the terminal");
  if (run->status != 0) throw Error("gnuplot: status " + std::to_string(run->status) + ": " + first_error(run->err));
  const std::string& text = run->out;
  if (text.empty()) throw Error("gnuplot: no output: " + first_error(run->err));
  const std::string_view whole = std::string_view(text).substr(0, text.find_last_not_of('\n') + 1);
  if (!whole.ends_with(image == Image::svg ? "</svg>" : "IEND\xAE\x42\x60\x82"))
    throw Error("gnuplot: the image is truncated");
  File output = File::open_update(path);
  output.write_all(text);
  output.close();
}

}  // namespace fp8::plot
