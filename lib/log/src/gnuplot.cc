// SVG and PNG through gnuplot. The script travels in memory as its standard input and the picture comes back as its
// standard output: no shell, no path in the script, nothing for two processes to wait on each other for. The picture
// comes back in memory too, since gnuplot does not notice a disk that is full.
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <csignal>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/log/plot.h"
#include "range.h"

namespace fp8::log {
namespace {

// Told apart by people who see colours differently too. Source: Okabe and Ito 2008, less their yellow.
constexpr std::array<const char*, 7> kColours = {"0072B2", "D55E00", "009E73", "CC79A7", "E69F00", "56B4E9", "404040"};

[[noreturn]] void fail(const std::string& what, int error) { throw_errno("gnuplot", what, error); }

// A file in memory.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(::memfd_create(name, MFD_CLOEXEC)) {
    if (fd_ < 0) fail("no memory file", errno);
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot write its script", errno);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::lseek(fd_, 0, SEEK_SET) != 0) fail("cannot rewind its script", errno);
  }
  // What the child wrote.
  std::string text() const {
    std::string all;
    std::array<char, 1 << 16> piece{};
    ssize_t n = 0;
    while ((n = ::pread(fd_, piece.data(), piece.size(), static_cast<off_t>(all.size()))) > 0)
      all.append(piece.data(), static_cast<std::size_t>(n));
    if (n < 0) fail("cannot read what it wrote", errno);
    return all;
  }

 private:
  int fd_;
};

// What posix_spawn needs, freed by itself.
class SpawnSetup {
 public:
  SpawnSetup(int in, int out, int err) {
    check(::posix_spawn_file_actions_init(&actions_));
    check(::posix_spawnattr_init(&attributes_));
    const std::array<int, 3> from = {in, out, err};
    for (int to = 0; to < 3; ++to) {
      check(::posix_spawn_file_actions_adddup2(&actions_, from.at(static_cast<std::size_t>(to)), to));
    }
    sigset_t defaults;
    ::sigemptyset(&defaults);
    for (const int ignored : {SIGPIPE, SIGXFSZ}) ::sigaddset(&defaults, ignored);  // in the tools, and inherited
    check(::posix_spawnattr_setsigdefault(&attributes_, &defaults));
    check(::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF));
  }
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  static void check(int error) {
    if (error != 0) fail("cannot be set up", error);
  }
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// A string of gnuplot's. All but plain characters are written as octal escapes, so that nothing in `text` can end the
// string or be expanded.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : terminal_safe(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == ' ') {
      out += c;
    } else {
      out += {'\\', static_cast<char>('0' + (byte >> 6U)), static_cast<char>('0' + ((byte >> 3U) & 7U)),
              static_cast<char>('0' + (byte & 7U))};
    }
  }
  return out + "\"";
}

// What stands beside the y axis.
std::string axis_label(const std::string& metric) {
  struct Label {
    std::string_view metric;
    std::string_view text;
  };
  constexpr std::array<Label, 9> kLabels = {{{"loss", "loss (nats per token)"},
                                             {"eval_loss", "loss of evaluations (nats per token)"},
                                             {"grad_norm", "gradient norm before clipping"},
                                             {"lr", "learning rate"},
                                             {"tokens_per_s", "tokens per second"},
                                             {"step_s", "seconds per step"},
                                             {"data_wait_s", "seconds waiting for data, per step"},
                                             {"memory_peak_bytes", "peak memory"},
                                             {"fp8_flop_share", "share of FLOPs in FP8"}}};
  const auto* at = std::find_if(kLabels.begin(), kLabels.end(), [&](const Label& l) { return l.metric == metric; });
  return at == kLabels.end() ? metric : std::string(at->text);
}

void append_data(const std::string& name, const std::vector<Point>& points, std::string& script) {
  script += "$" + name + " << END_OF_DATA\n";
  bool any = false;
  for (const Point& p : points) {
    if (std::isfinite(p.y)) {
      script += format_double(p.x) + " " + format_double(p.y) + "\n";
    } else if (any) {
      script += "\n";  // an empty line interrupts the curve
    }
    any = any || std::isfinite(p.y);
  }
  if (!any) script += "0 NaN\n";
  script += "END_OF_DATA\n";
}

// What the values are divided by, so that the numbers at the axis are short, and how the label says so.
struct Scale {
  double divisor = 1;
  std::string suffix{};
};

Scale scale_of(const Picture& picture, const Range& range) {
  const double largest = std::max(std::abs(range.y0), std::abs(range.y1));
  if (picture.metric.ends_with("_bytes")) return {1024.0 * 1024 * 1024, " (GiB)"};
  if (largest >= 1e10) return {1e9, " (G)"};
  if (largest >= 1e7) return {1e6, " (M)"};
  if (largest >= 1e4) return {1e3, " (k)"};
  if (largest >= 1e-2 || largest < 1e-300) return {};
  const int exponent = static_cast<int>(std::floor(std::log10(largest)));
  return {std::pow(10.0, exponent), " (1e" + std::to_string(exponent) + ")"};
}

// Terminal, axes and legend.
std::string style_of(const Picture& picture, Image image, const Range& range, const Scale& scale) {
  const bool from_zero = range.y0 >= 0 && range.y0 < range.y1 / 4;
  return std::string("set encoding utf8\nset terminal ") +
         (image == Image::svg ? "svg font 'DejaVu Sans,15'" : "pngcairo font 'DejaVu Sans,12'") +
         " size 900,506 noenhanced background rgb '#ffffff'\n"
         "set border 3 lw 1 lc rgb '#909090'\n"
         "set tics nomirror out scale 0.5 textcolor rgb '#404040'\n"
         "set grid lt 1 dt 1 lw 1 lc rgb '#e4e4e4'\n"
         "set key tmargin left horizontal reverse Left samplen 2 width 2 textcolor rgb '#202020'\n"
         "set rmargin 4\n"
         "set format x '%.1s%c'\nset format y '%g'\nset xlabel '" +
         (picture.by_tokens ? "tokens seen" : "step") + "' textcolor rgb '#202020'\nset ylabel " +
         quoted(axis_label(picture.metric) + scale.suffix) +
         " textcolor rgb '#202020'\nset autoscale xfix\nset offsets 0, 0, graph 0.03, " +
         (from_zero ? "0\nset yrange [0:*]\n" : "graph 0.03\n");
}

std::string script_of(const Picture& picture, Image image) {
  const Range range = range_of(picture);
  const Scale scale = scale_of(picture, range);
  const std::string values = " using 1:($2/" + format_double(scale.divisor) + ") with ";
  std::string data, faint, strong;
  for (std::size_t i = 0; i < picture.curves.size(); ++i) {
    const Curve& curve = picture.curves[i];
    const std::string raw = "raw" + std::to_string(i), smooth = "smooth" + std::to_string(i);
    const std::string colour = kColours.at(i % kColours.size());
    const bool both = !curve.smooth.empty();
    append_data(raw, curve.raw, data);
    if (both) append_data(smooth, curve.smooth, data);
    if (both) faint += "$" + raw + values + "lines lw 1 lc rgb '#B0" + colour + "' notitle, ";
    strong += (strong.empty() ? "$" : ", $") + (both ? smooth : raw) + values +
              (curve.raw.size() > 1 ? "lines lw 2" : "points pt 7") + " lc rgb '#" + colour + "' title " +
              quoted(curve.name);
  }
  return style_of(picture, image, range, scale) + data + "plot " + faint + strong + "\n";
}

// Waits for the child; its exit status, or 128 and the signal that ended it.
int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("cannot be waited for", errno);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string first_complaint(const std::string& text) {
  // gnuplot prints the line, a caret, and then what is wrong after "line N: ".
  const std::size_t at = text.rfind("line ");
  std::string said = at == std::string::npos ? text : text.substr(at);
  said.erase(std::min(said.find('\n'), said.size()));
  return said;
}

}  // namespace

void gnuplot_plot(const Picture& picture, Image image, const std::string& path) {
  const MemoryFile script("fp8-plot"), drawn("fp8-plot-picture"), errors("fp8-plot-errors");
  script.write(script_of(picture, image));
  const SpawnSetup setup(script.fd(), drawn.fd(), errors.fd());
  std::string name = "gnuplot", defaults = "-d";  // -d: not the user's settings
  std::array<char*, 3> words = {name.data(), defaults.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, name.c_str(), setup.actions(), setup.attributes(), words.data(), environ);
  if (error == ENOENT) throw Error("gnuplot: not installed; without -o the plot is drawn in the terminal");
  if (error != 0) fail("cannot be run", error);
  const int status = wait_for(child);
  if (status != 0) throw Error("gnuplot: status " + std::to_string(status) + ": " + first_complaint(errors.text()));
  const std::string text = drawn.text();
  if (text.empty()) throw Error("gnuplot: drew nothing: " + first_complaint(errors.text()));
  const std::string_view whole = std::string_view(text).substr(0, text.find_last_not_of('\n') + 1);
  if (!whole.ends_with(image == Image::svg ? "</svg>" : "IEND\xAE\x42\x60\x82"))
    throw Error("gnuplot: its picture is cut short");
  File output = File::open_update(path);
  output.write_all(text);
  output.close();
}

}  // namespace fp8::log
