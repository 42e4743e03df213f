// Bars of memory and intervals of speed.
#include "picture.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fp8/base/file.h"
#include "fp8/base/text.h"

namespace fp8::plan {
namespace {

constexpr double kGibi = 1073741824.0;
constexpr double kNamed = 0.01;  // share of the largest bar below which a category counts as another

// The categories by the numbers of their colors, which are the same in every picture. Others share the next color, and
// the rest has the last.
constexpr std::array<std::string_view, 14> kColored{
    "moments",          "master weights", "gradients", "compute weights", "gathered weights",    "gradient buffers",
    "activations",      "scratch",        "fp8 codes", "frozen weights",  "attention workspace", "snapshot",
    "activation codes", "logits block"};
constexpr std::size_t kRest = plot::kBarColors - 1;
static_assert(kColored.size() < kRest);

std::size_t color_of(const std::string& category) {
  return static_cast<std::size_t>(std::ranges::find(kColored, category) - kColored.begin());
}

// The categories that are large in any of the estimates, the largest first.
std::vector<std::string> categories_of(const std::vector<const Estimate*>& all) {
  std::vector<std::pair<std::size_t, std::string>> found;
  std::size_t most = 0;
  for (const Estimate* e : all) {
    most = std::max(most, e->memory.plan.total());
    for (const device::Usage& u : e->memory.plan.usage) {
      const auto same = std::ranges::find(found, u.category, [](const auto& f) { return f.second; });
      if (same == found.end())
        found.emplace_back(u.bytes, u.category);
      else
        same->first = std::max(same->first, u.bytes);
    }
  }
  std::erase_if(found,
                [&](const auto& f) { return static_cast<double>(f.first) < kNamed * static_cast<double>(most); });
  std::ranges::stable_sort(found, std::greater(), [](const auto& f) { return f.first; });
  std::vector<std::string> names;
  for (const auto& [bytes, name] : found) names.push_back(name);
  return names;
}

}  // namespace

plot::BarChart picture_of(const Question& q, const std::vector<const Estimate*>& all, std::vector<std::string> names,
                          bool ranks) {
  plot::BarChart chart;
  chart.title = q.model.name + (q.machine ? " on " + q.machine->name : "");
  chart.label = "GiB of each rank";
  chart.names = std::move(names);
  const std::vector<std::string> categories = categories_of(all);
  for (const std::string& category : categories) {
    chart.parts.push_back({category, {}, color_of(category)});
    for (const Estimate* e : all)
      chart.parts.back().values.push_back(static_cast<double>(e->memory.plan.bytes_of(category)) / kGibi);
  }
  chart.parts.push_back({"the rest", {}, kRest});
  for (std::size_t i = 0; i < all.size(); ++i) {
    double rest = static_cast<double>(all[i]->memory.plan.total()) / kGibi;
    for (std::size_t p = 0; p + 1 < chart.parts.size(); ++p) rest -= chart.parts[p].values[i];
    chart.parts.back().values.push_back(std::max(0.0, rest));
  }
  if (!q.machine) return chart;
  chart.limit = static_cast<double>(memory_of_rank(*q.machine, all.back()->run)) / kGibi;
  chart.limit_name = "memory of a rank";
  chart.intervals = plot::IntervalPanel{ranks ? "1000 tokens/s of all" : "1000 tokens/s, each rank", {}};
  for (const Estimate* e : all) {
    const Range each = tokens_per_rank(e->run, *e->speed);
    const double factor = 1e-3 * (ranks ? e->run.mesh.ranks() : 1);
    chart.intervals->values.emplace_back(each.slow * factor, each.fast * factor);
  }
  return chart;
}

void draw(const plot::BarChart& chart, const std::string& path, bool force) {
  const plot::Image image = plot::image_of(path);
  check_output(path, force, {});
  AtomicFile target(path, force);
  plot::gnuplot_bars(chart, image, target.path());
  target.commit();
}

}  // namespace fp8::plan
