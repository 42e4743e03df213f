// Source: transformers 5.8, optimization.py; LLaMA-Factory ff6d4d12, train/trainer_utils.py (the lengths of
// warmup_stable_decay).
#include "trainer_schedule.h"

#include <algorithm>
#include <string>

#include "fp8/base/text.h"

namespace fp8::foreign {
namespace {

constexpr double kDefaultRate = 5e-5;

class Schedule {
 public:
  explicit Schedule(Mapping& map)
      : map_(map), import_(map.import()), rate_(map.number("learning_rate", kDefaultRate)) {}

  void set() {
    const std::string name = map_.text("lr_scheduler_type", "linear");
    const std::string kind = kind_of(name);
    const bool known = !kind.empty();
    const Class cls = known ? Class::mapped : Class::no_counterpart;
    map_.answer("lr_scheduler_type", "linear", cls, known ? "--schedule " + kind : "",
                known ? "" : "--schedule cosine comes nearest");
    import_.set("schedule", known ? kind : "cosine");
    import_.set("min-lr", least_);
    for (const char* key : {"min_lr", "min_lr_rate", "lr_end", "min_lr_ratio"})
      map_.note(argument(key), cls, "--min-lr " + format_double(least_));
    for (const char* key : {"num_cycles", "power", "warmup_type"}) map_.note(argument(key), cls, "--schedule");
    map_.note(argument("decay_type"), cls, "--decay-shape");
    map_.note("lr_scheduler_kwargs", Class::no_counterpart, "", "an argument of this schedule that is not read");
  }

 private:
  static std::string argument(const std::string& name) { return "lr_scheduler_kwargs." + name; }
  double value(const char* name, double fallback) const { return map_.number(argument(name), fallback); }

  // The value of --schedule; empty: there is none.
  std::string kind_of(const std::string& name) {
    if (name == "linear" || name == "constant_with_warmup") return name == "linear" ? name : "constant";
    if (name == "constant") {
      import_.duration.warmup_steps = 0;
      return name;
    }
    if (name == "cosine") return value("num_cycles", 0.5) == 0.5 ? "cosine" : "";
    if (name == "cosine_with_restarts") return value("num_cycles", 1) == 1 ? "cosine" : "";
    if (name == "cosine_with_min_lr") {
      least_ = map_.has(argument("min_lr")) ? value("min_lr", 0) : value("min_lr_rate", 0) * rate_;
      return value("num_cycles", 0.5) == 0.5 ? "cosine" : "";
    }
    if (name == "polynomial") {
      least_ = value("lr_end", 1e-7);
      return value("power", 1) == 1 ? "linear" : "";
    }
    return name == "warmup_stable_decay" ? stable_and_decay() : "";
  }

  // By default a third of the steps after the warm-up is stable, and the end is a cosine.
  std::string stable_and_decay() {
    const bool sizes = map_.has(argument("num_decay_steps")) || map_.has(argument("num_stable_steps"));
    if (sizes || map_.text(argument("warmup_type"), "linear") != "linear") return "";
    least_ = value("min_lr_ratio", 0) * rate_;
    import_.set("decay-shape", map_.text(argument("decay_type"), "cosine"));
    import_.duration.warmup_from = least_;
    import_.duration.decay_rule = [](std::int64_t steps, std::int64_t warmup) {
      const std::int64_t left = std::max<std::int64_t>(steps - warmup, 0);
      return left - left / 3;
    };
    return "wsd";
  }

  Mapping& map_;
  Import& import_;
  double rate_, least_ = 0;
};

}  // namespace

void set_trainer_schedule(Mapping& map) { Schedule(map).set(); }

}  // namespace fp8::foreign
