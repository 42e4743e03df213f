// Reading machine files.
#include "fp8/plan/machine.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"
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

  Figures part(const std::string& key) const { return {object_.get_object(key, what_), what_ + ": " + key}; }
  bool has(const std::string& key) const { return object_.contains(key); }

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
    const json::Value& rows = part(key).value();
    Curve curve;
    if (!rows.is_array() || rows.as_array().empty()) fail(key, "needs rows [SIZE, SLOW, FAST]");
    for (const json::Value& row : rows.as_array()) {
      if (!row.is_array() || row.as_array().size() != 3) fail(key, "needs rows [SIZE, SLOW, FAST]");
      const json::Array& r = row.as_array();
      if (!r[0].is_number()) fail(key, "needs numbers");
      curve.emplace_back(checked(key, r[0].as_double(), false), range_of(key, json::Array{r[1], r[2]}, false));
      if (curve.back().second.slow > curve.back().second.fast)
        fail(key, "needs the smaller value of a row first, which makes a step slow");
      if (curve.size() > 1 && curve[curve.size() - 2].first >= curve.back().first) fail(key, "needs increasing sizes");
    }
    return curve;
  }
  GemmRates gemm(const std::string& key) const {
    const Figures f = part(key);
    return {f.rate("rate"), f.range_of("depth", f.part("depth").value(), true).slow};
  }
  Link link(const std::string& key) const {
    const Figures f = part(key);
    return {f.rate("rate"), f.cost("hop")};
  }

 private:
  const json::Value& value() const {
    const json::Value* v = object_.find("value");
    if (v == nullptr) throw Error(what_ + ": has no \"value\"");
    return *v;
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
};

// Sets KEY=VALUE, the value of a figure that exists.
void set_key(json::Value& file, const std::string& assignment) {
  const std::string flag = cli::flag_name("set") + " machine." + assignment;
  const std::size_t equals = assignment.find('=');
  json::Value* at = &file;
  for (std::size_t begin = 0; equals != std::string::npos && at != nullptr && begin <= equals;) {
    const std::size_t end = std::min(assignment.find('.', begin), equals);
    at = at->is_object() ? at->as_object().find(std::string_view(assignment).substr(begin, end - begin)) : nullptr;
    begin = end + 1;
  }
  if (at == nullptr || !at->is_object() || !at->as_object().contains("value"))
    throw Error(flag + ": needs KEY=VALUE with a key of the machine's file, as gemm.bf16.rate");
  at->as_object().set("value", json::parse(assignment.substr(equals + 1), flag, kLimits));
}

device::DeviceType device_of(const json::Object& file, const std::string& path) {
  const std::string& name = file.get_string("device", path);
  if (name == "cuda") return device::DeviceType::cuda;
  if (name == "cpu") return device::DeviceType::host;
  throw Error(path + ": device: '" + excerpt(name) + "' is not cuda or cpu");
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

Machine open_machine(const std::string& name_or_path, const std::vector<std::string>& keys) {
  const std::string path = share_file("machines", "machine", name_or_path);
  json::Value file = json::Value(json::parse_object_file(path, "a machine", kLimits));
  for (const std::string& key : keys) set_key(file, key);
  const Figures f(file.as_object(), path);
  Machine m;
  m.name = file.as_object().get_string("name", path);
  m.device = device_of(file.as_object(), path);
  m.memory = f.bytes("memory");
  m.ranks_per_host = f.count("ranks_per_host");
  m.linked_ranks = f.count("linked_ranks");
  if (m.device == device::DeviceType::cuda) m.compute_capability = f.count("compute_capability");
  m.processors = f.count("processors");
  const Figures gemm = f.part("gemm"), attention = f.part("attention"), bytes = f.part("bytes");
  m.f32 = gemm.gemm("f32");
  m.bf16 = gemm.gemm("bf16");
  m.fp8 = gemm.gemm("fp8");
  m.fp8_accurate = gemm.gemm("fp8_accurate");
  m.fp8_blocks = gemm.gemm("fp8_blocks");
  m.attention_forward = attention.curve("forward");
  m.attention_backward = attention.curve("backward");
  m.attention_heads = attention.curve("heads");
  m.cast = bytes.rate("cast");
  m.kernel = bytes.rate("kernel");
  m.optimizer = bytes.rate("optimizer");
  m.launch = f.cost("launch");
  m.host_launch = f.cost("host_launch");
  m.link = f.link("link");
  m.network = f.link("network");
  m.contention = f.cost("contention");
  return m;
}

}  // namespace fp8::plan
