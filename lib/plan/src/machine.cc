// Reading machine files.
#include "fp8/plan/machine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/base/host.h"
#include "fp8/base/share.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/json/json.h"

namespace fp8::plan {
namespace {

constexpr json::Limits kLimits{.max_depth = 16, .max_bytes = std::size_t{1} << 20U};

// A figure is {"value": X or [SLOW, FAST], "source": "..."}; the source is for readers. `what` names the file and the
// keys that lead to it.
class Figures {
 public:
  Figures(const json::Object& object, std::string what) : object_(object), what_(std::move(what)) {}

  Figures part(const std::string& key) const {
    (void)has(key);
    return {object_.get_object(key, what_), what_ + ": " + key};
  }
  bool has(const std::string& key) const {
    keys_.push_back(key);
    return object_.contains(key);
  }
  const std::string& text(const std::string& key) const {
    (void)has(key);
    return object_.get_string(key, what_);
  }
  // Throws Error for a key that was not asked for.
  void refuse_others() const {
    for (const auto& [key, value] : object_)
      if (std::ranges::find(keys_, key) == keys_.end())
        throw Error(what_ + ": unknown key '" + excerpt(key) + "'" + cli::did_you_mean(key, keys_));
  }

  double number(const std::string& key) const {
    const json::Value& v = part(key).value();
    if (!v.is_number()) fail(key, "needs a number");
    return checked(key, v.as_double(), false);
  }
  std::size_t bytes(const std::string& key) const {
    const double n = number(key);
    if (n < 1e6 || n > 1e15) fail(key, "needs bytes from 1e6 to 1e15");
    return static_cast<std::size_t>(n);
  }
  // A count that fits an int.
  int count(const std::string& key) const {
    const double n = number(key);
    if (n < 1 || n > 1e9 || n != std::floor(n)) fail(key, "needs a whole number from 1 to 1e9");
    return static_cast<int>(n);
  }
  // A rate, of which the slow value is the smaller one.
  Range rate(const std::string& key) const {
    const Range r = range_of(key, part(key).value(), false);
    if (r.slow > r.fast) fail(key, "needs the smaller rate first, which makes a step slow");
    return r;
  }
  // Seconds, or a share, of which the slow value is the larger one.
  Range cost(const std::string& key) const {
    const Range r = range_of(key, part(key).value(), true);
    if (r.slow < r.fast) fail(key, "needs the larger value first, which makes a step slow");
    return r;
  }
  Curve curve(const std::string& key) const {
    Curve curve;
    for (const auto& [sizes, rate] : rows(key, 1, "needs rows [SIZE, SLOW, FAST]")) {
      if (!curve.empty() && curve.back().first >= sizes[0]) fail(key, "needs increasing sizes");
      curve.emplace_back(sizes[0], rate);
    }
    return curve;
  }
  // A curve for each key of an object.
  std::map<std::string, Curve, std::less<>> curves() const {
    std::map<std::string, Curve, std::less<>> all;
    for (const auto& [key, value] : object_) all.emplace(key, curve(key));
    return all;
  }
  GemmRates gemm(const std::string& key) const {
    const Figures f = part(key);
    GemmRates rates{f.rate("rate"), f.range_of("depth", f.part("depth").value(), true).slow};
    if (f.has("shapes"))
      for (const auto& [s, rate] : f.rows("shapes", 3, "needs rows [M, N, K, SLOW, FAST]"))
        rates.shapes.push_back({s[0], s[1], s[2], rate});
    f.refuse_others();
    return rates;
  }
  Link link(const std::string& key) const {
    const Figures f = part(key);
    const Link link{f.rate("rate"), f.cost("hop")};
    f.refuse_others();
    return link;
  }

 private:
  const json::Value& value() const {
    (void)has("source");
    if (!has("value")) throw Error(what_ + ": has no \"value\"");
    refuse_others();
    return object_.at("value");
  }
  // Rows of `count` sizes and a rate.
  std::vector<std::pair<std::vector<double>, Range>> rows(const std::string& key, std::size_t count,
                                                          const char* needs) const {
    const Figures figure = part(key);
    const json::Value& value = figure.value();
    if (!value.is_array() || value.as_array().empty()) fail(key, needs);
    std::vector<std::pair<std::vector<double>, Range>> rows;
    for (const json::Value& row : value.as_array()) {
      if (!row.is_array() || row.as_array().size() != count + 2) fail(key, needs);
      const json::Array& r = row.as_array();
      std::vector<double> sizes;
      for (std::size_t i = 0; i < count; ++i) {
        if (!r[i].is_number()) fail(key, "needs numbers");
        sizes.push_back(checked(key, r[i].as_double(), false));
      }
      rows.emplace_back(std::move(sizes), range_of(key, json::Array{r[count], r[count + 1]}, false));
      if (rows.back().second.slow > rows.back().second.fast)
        fail(key, "needs the smaller value of a row first, which makes a step slow");
    }
    return rows;
  }
  Range range_of(const std::string& key, const json::Value& v, bool may_be_zero) const {
    if (v.is_number()) return {checked(key, v.as_double(), may_be_zero), v.as_double()};
    if (!v.is_array() || v.as_array().size() != 2 || !v.as_array()[0].is_number() || !v.as_array()[1].is_number())
      fail(key, "needs a number, or two: that which makes a step slow, and that which makes it fast");
    return {checked(key, v.as_array()[0].as_double(), may_be_zero),
            checked(key, v.as_array()[1].as_double(), may_be_zero)};
  }
  double checked(const std::string& key, double x, bool may_be_zero) const {
    constexpr double kLeast = 1e-12, kMost = 1e24;
    if (x == 0 && may_be_zero) return x;
    if (!(x >= kLeast && x <= kMost))
      fail(key, may_be_zero ? "needs 0, or a number from 1e-12 to 1e24" : "needs a number from 1e-12 to 1e24");
    return x;
  }
  [[noreturn]] void fail(const std::string& key, const char* why) const {
    throw Error(what_ + ": " + key + ": " + why);
  }

  const json::Object& object_;
  std::string what_;
  mutable std::vector<std::string> keys_;  // that were asked for
};

// Sets KEY=VALUE, the value of a figure that exists.
void set_key(json::Value& file, const std::string& assignment) {
  const std::string flag = cli::flag_name("set") + " machine." + assignment;
  const std::size_t equals = assignment.find('=');
  json::Value* at = &file;
  std::string hint;
  for (std::size_t begin = 0; equals != std::string::npos && at != nullptr && begin <= equals;) {
    const std::size_t end = std::min(assignment.find('.', begin), equals);
    const std::string part = assignment.substr(begin, end - begin);
    json::Value* const next = at->is_object() ? at->as_object().find(part) : nullptr;
    if (next == nullptr && at->is_object()) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : at->as_object()) keys.push_back(key);
      hint = cli::did_you_mean(part, keys, "machine." + assignment.substr(0, begin));
    }
    at = next;
    begin = end + 1;
  }
  if (at == nullptr || !at->is_object() || !at->as_object().contains("value"))
    throw Error(flag + ": needs KEY=VALUE with a key of the machine's file, as gemm.bf16.rate" + hint);
  at->as_object().set("value", json::parse(assignment.substr(equals + 1), flag, kLimits));
}

device::DeviceType device_of(const Figures& file, const std::string& path) {
  const std::string& name = file.text("device");
  if (name == "cuda") return device::DeviceType::cuda;
  if (name == "cpu") return device::DeviceType::host;
  throw Error(path + ": device: '" + excerpt(name) + "' is not cuda or cpu");
}

MeasuredHost host_of(const Figures& f) {
  MeasuredHost host{f.text("name"), f.text("processor"), f.count("cores")};
  f.refuse_others();
  return host;
}

void read_gemms(const Figures& gemm, Machine& m) {
  m.f32 = gemm.gemm("f32");
  m.bf16 = gemm.gemm("bf16");
  m.fp8 = gemm.gemm("fp8");
  m.fp8_accurate = gemm.gemm("fp8_accurate");
  m.fp8_blocks = gemm.gemm("fp8_blocks");
  if (gemm.has("fp4")) m.fp4 = gemm.gemm("fp4");
  gemm.refuse_others();
}

void read_attention(const Figures& attention, Machine& m) {
  m.attention_forward = attention.curve("forward");
  m.attention_backward = attention.curve("backward");
  m.attention_heads = attention.curve("heads");
  attention.refuse_others();
}

void read_bytes(const Figures& bytes, Machine& m) {
  m.cast = bytes.rate("cast");
  m.kernel = bytes.rate("kernel");
  m.optimizer = bytes.rate("optimizer");
  bytes.refuse_others();
}

void scale(Range& rate, double factor) { rate = {rate.slow * factor, rate.fast * factor}; }

void scale(Curve& curve, double factor) {
  for (auto& [size, rate] : curve) scale(rate, factor);
}

}  // namespace

double Machine::value(const Curve& curve, double size, bool favourable) {
  const auto above = std::ranges::find_if(curve, [&](const auto& p) { return p.first >= size; });
  if (above == curve.begin()) return above->second.at(favourable);
  const auto below = above - 1;
  if (above == curve.end()) return below->second.at(favourable);
  const double part = std::log(size / below->first) / std::log(above->first / below->first);
  return below->second.at(favourable) + part * (above->second.at(favourable) - below->second.at(favourable));
}

double GemmRates::near(double m, double n, double k, bool favourable) const {
  constexpr double kOwn = 1e-6;  // squared distance at which a shape alone counts
  double weights = 0, sum = 0;
  for (const GemmShape& s : shapes) {
    const double square =
        std::pow(std::log(s.m / m), 2) + std::pow(std::log(s.n / n), 2) + std::pow(std::log(s.k / k), 2);
    const double weight = std::pow(square + kOwn, -2);
    weights += weight;
    sum += weight * std::log(s.rate.at(favourable));
  }
  return std::exp(sum / weights);
}

Machine Machine::share_of(int ranks) const {
  Machine m = *this;
  if (cores == 0 || ranks <= 1) return m;
  const double part = 1.0 / ranks;
  m.memory /= static_cast<std::size_t>(ranks);
  for (GemmRates* const gemm : {&m.f32, &m.bf16, &m.fp8, &m.fp8_accurate, &m.fp8_blocks, m.fp4 ? &*m.fp4 : nullptr}) {
    if (gemm == nullptr) continue;
    scale(gemm->rate, part);
    for (GemmShape& s : gemm->shapes) scale(s.rate, part);
  }
  for (Curve* const curve : {&m.attention_forward, &m.attention_backward}) scale(*curve, part);
  for (auto& operation : m.operations) scale(operation.second, part);
  for (Range* const rate : {&m.cast, &m.kernel, &m.optimizer}) scale(*rate, part);
  return m;
}

Machine open_machine(const std::string& name_or_path, const std::vector<std::string>& keys) {
  const std::string path = share_file("machines", "machine", name_or_path);
  json::Value file = json::Value(json::parse_object_file(path, "a machine", kLimits));
  for (const std::string& key : keys) set_key(file, key);
  const Figures f(file.as_object(), path);
  Machine m;
  m.name = f.text("name");
  m.device = device_of(f, path);
  if (f.has("host")) m.host = host_of(f.part("host"));
  m.memory = f.bytes("memory");
  m.ranks_per_host = f.count("ranks_per_host");
  m.linked_ranks = f.count("linked_ranks");
  if (m.device == device::DeviceType::cuda) m.compute_capability = f.count("compute_capability");
  m.processors = f.count("processors");
  if (f.has("cores")) m.cores = f.count("cores");
  read_gemms(f.part("gemm"), m);
  read_attention(f.part("attention"), m);
  read_bytes(f.part("bytes"), m);
  if (f.has("operations")) m.operations = f.part("operations").curves();
  m.launch = f.cost("launch");
  m.host_launch = f.cost("host_launch");
  m.link = f.link("link");
  m.network = f.link("network");
  m.contention = f.cost("contention");
  f.refuse_others();
  return m;
}

std::string stored_machine_path() {
  const char* const config = std::getenv("XDG_CONFIG_HOME");  // NOLINT(concurrency-mt-unsafe): never set here
  if (config != nullptr && *config != '\0') return std::string(config) + "/fp8/machine.json";
  const char* const home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): never set here
  return home != nullptr && *home != '\0' ? std::string(home) + "/.config/fp8/machine.json" : "";
}

namespace {

std::string text_of(const MeasuredHost& host) {
  return host.name + " (" + host.processor + ", " + counted(host.cores, "core") + ")";
}

}  // namespace

FoundMachine find_machine(const std::string& name_or_path, const std::vector<std::string>& keys) {
  if (!name_or_path.empty()) return {open_machine(name_or_path, keys), ""};
  const std::string path = stored_machine_path();
  std::error_code ignored;
  if (path.empty() || !std::filesystem::exists(path, ignored)) return {};
  FoundMachine found{open_machine(path, keys), "the machine is " + path};
  const MeasuredHost here = this_host();
  const std::optional<MeasuredHost>& there = found.machine->host;
  if (there == here) return found;
  return {std::nullopt, path + ": not used: measured on " + (there ? text_of(*there) : "another host") + ", this is " +
                            text_of(here) + "; " + cli::flag_name("machine") + " " + path + " uses it"};
}

MeasuredHost this_host() { return {host_name(), processor_name(), device::host_threads()}; }

}  // namespace fp8::plan
