// Prices of operations and exchanges, and the two streams of a rank.
#include "fp8/plan/price.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/cli/command.h"
#include "fp8/model/stages.h"

namespace fp8::plan {
namespace {

using device::Exchange;
using device::ExchangeKind;
using device::Span;
using device::SpanKind;
using device::Work;

Term term_of(const Span& s) {
  switch (s.work) {
    case Work::matmul_forward:
      return Term::gemm_forward;
    case Work::matmul_dgrad:
      return Term::gemm_dgrad;
    case Work::matmul_wgrad:
      return Term::gemm_wgrad;
    case Work::matmul_other:
      return Term::gemm_other;
    case Work::attention:
      return Term::attention;
    case Work::cast:
      return Term::casts;
    case Work::communication:
      return Term::communication;
    case Work::optimizer:
    case Work::cross_entropy:
    case Work::elementwise:
    case Work::input_output:
      break;
  }
  return Term::kernels;
}

const GemmRates& rates_of(const Machine& m, const Span& s) {
  if (s.operands == device::OperandKind::f32) return m.f32;
  if (s.operands == device::OperandKind::bf16) return m.bf16;
  if (s.operands == device::OperandKind::fp4) return m.fp4 ? *m.fp4 : m.bf16;  // a CPU multiplies FP4 values as bf16
  const bool blocks = s.scaling == device::Scaling::block1x128 || s.scaling == device::Scaling::block128x128;
  return blocks ? m.fp8_blocks : s.work == Work::matmul_forward ? m.fp8 : m.fp8_accurate;
}

// Share of the multiprocessors that the tiles of C [m, n] of `count` GEMMs keep busy: the last wave of tiles is not
// full. The smaller tile, which reaches less of the rate, fills a small matrix better.
double share_of_tiles(double m, double n, double count, int processors) {
  struct Tile {
    double rows, columns, rate;
  };
  double best = 0;
  for (const Tile t : {Tile{128, 256, 1}, Tile{128, 128, 0.85}, Tile{64, 128, 0.6}}) {
    const double rows = std::ceil(m / t.rows), columns = std::ceil(n / t.columns), tiles = rows * columns * count;
    const double waves = std::ceil(tiles / processors) * processors;
    best = std::max(best, t.rate * (tiles / waves) * (m / (rows * t.rows)) * (n / (columns * t.columns)));
  }
  return best;
}

double seconds_of_gemm(const Machine& m, const Corner& corner, const Span& s) {
  const double count = std::max(1, s.gemms), k = static_cast<double>(s.mnk[2]);
  const double rows = static_cast<double>(s.mnk[0]) / count, columns = static_cast<double>(s.mnk[1]);
  const GemmRates& rates = rates_of(m, s);
  if (!rates.shapes.empty()) return s.flops / rates.near(rows, columns, k, corner.gemm);
  const double share = m.processors > 1 ? share_of_tiles(rows, columns, count, m.processors) : 1;
  const double rate = rates.rate.at(corner.gemm) * share * k / (k + rates.depth);
  return std::max(s.flops / rate, s.bytes / m.kernel.at(corner.bytes));
}

double seconds_of_attention(const Machine& m, const Corner& corner, const Span& s) {
  const double positions = static_cast<double>(std::max<std::int64_t>(1, s.mnk[1]));
  const double heads = static_cast<double>(s.mnk[0]) * positions / 4096;
  const Curve& curve = s.name.find("backward") != std::string_view::npos ? m.attention_backward : m.attention_forward;
  const double rate =
      Machine::value(curve, positions, corner.attention) * Machine::value(m.attention_heads, heads, corner.attention);
  return std::max(s.flops / rate, s.bytes / m.kernel.at(corner.bytes));
}

}  // namespace

double Times::total() const { return std::accumulate(of.begin(), of.end(), 0.0); }

void Times::add(const Times& other, double factor) {
  for (std::size_t i = 0; i < kTerms; ++i) of[i] += factor * other.of[i];
}

double seconds_of(const Machine& machine, const Corner& corner, const Span& s) {
  if (s.gemms > 0) return seconds_of_gemm(machine, corner, s);
  if (s.work == Work::attention) return seconds_of_attention(machine, corner, s);
  if (const auto measured = machine.operations.find(s.name); measured != machine.operations.end())
    return s.bytes / Machine::value(measured->second, s.bytes, corner.bytes);
  const Range& rate = s.work == Work::cast        ? machine.cast
                      : s.work == Work::optimizer ? machine.optimizer
                                                  : machine.kernel;
  return s.bytes / rate.at(corner.bytes);
}

// Ranks on one host, or in one rack, use `link`. Between them each rank has its own part of the network, and both are
// used at once.
double seconds_of(const Machine& machine, const Corner& corner, const Exchange& e) {
  if (e.ranks <= 1 || e.kind == ExchangeKind::none) return 0;
  const double n = e.ranks, machines = std::max(1, e.machines), each = n / machines;
  const bool across = machines > 1;
  const double inside = machine.link.rate.at(corner.network), outside = machine.network.rate.at(corner.network);
  const double hop = (across ? machine.network.hop : machine.link.hop).at(corner.network);
  const auto both = [&](double moved) {  // `moved`: bytes of all ranks that each gets or gives
    const double between = across ? moved * (machines - 1) / machines / (outside * each) : 0;
    return std::max(moved * (n - 1) / n / inside * (each > 1 ? 1 : 0), between);
  };
  switch (e.kind) {
    case ExchangeKind::all_gather:
    case ExchangeKind::reduce_scatter:
      return both(e.bytes) + hop * (n - 1);
    case ExchangeKind::all_reduce:  // rings up to 32 ranks, trees beyond
      return 2 * both(e.bytes) + hop * std::min(2 * (n - 1), 12 * std::log2(n));
    case ExchangeKind::all_to_all: {
      const double away = across ? e.bytes * (n - each) / std::max(1.0, n - 1) : 0;
      return std::max((e.bytes - away) / inside, away / outside) + hop * std::min(n - 1, 16.0);
    }
    case ExchangeKind::message:
      return e.bytes / (across ? outside : inside) + hop;
    case ExchangeKind::none:
      break;
  }
  return 0;
}

namespace {

// What a price depends on.
auto key_of(const Span& s) {
  return std::tuple(s.kind == SpanKind::start, s.work, s.name, s.bytes, s.flops, s.mnk, s.gemms, s.operands, s.scaling,
                    s.exchange.kind, s.exchange.ranks, s.exchange.machines, s.exchange.bytes);
}

}  // namespace

Record::Record(std::vector<Span> spans) : spans_(std::move(spans)) {
  std::map<decltype(key_of(Span())), std::size_t> known;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    const auto [at, is_new] = known.emplace(key_of(spans_[i]), distinct_.size());
    if (is_new) distinct_.push_back(i);
    price_.push_back(at->second);
  }
}

std::vector<double> Record::prices(const Prices& prices) const {
  std::vector<double> seconds;
  for (const std::size_t i : distinct_) {
    Span s = spans_[i];
    if (prices.habits.emulated && s.operands == device::OperandKind::fp8) s.operands = device::OperandKind::bf16;
    seconds.push_back(s.kind == SpanKind::start ? seconds_of(prices.machine, prices.corner, s.exchange)
                                                : seconds_of(prices.machine, prices.corner, s));
  }
  return seconds;
}

namespace {

// One rank's stream of operations, and its exchanges: those inside of linked ranks and those across them are two
// queues.
class Streams {
 public:
  explicit Streams(const Prices& prices)
      : habits_(prices.habits),
        gap_(prices.machine.launch.at(prices.corner.launch)),
        host_launch_(prices.habits.graphs ? 0 : prices.machine.host_launch.at(prices.corner.launch)),
        contention_(prices.machine.contention.at(prices.corner.network)) {
    passes_.emplace_back();
  }

  void run(const Span& s, double seconds) {
    switch (s.kind) {
      case SpanKind::operation:
        return operate(s, seconds);
      case SpanKind::start:
        return start(s, seconds);
      case SpanKind::wait:
        return wait(s.number);
      case SpanKind::mark:
        if (s.name == device::kUnitMark) return;
        finish();
        passes_.push_back({s.name, s.number, {}});
    }
  }

  std::vector<Pass> passes() {
    finish();
    return std::move(passes_);
  }

 private:
  struct Open {
    double end = 0, seconds = 0, started = 0;
    bool open = false;
  };

  void operate(const Span& s, double alone) {
    const bool attention = s.work == Work::attention;
    const double share = s.gemms == 0 && !attention ? habits_.fused : 1;
    const double launches = share * s.launches, seconds = (attention ? 1 / habits_.attention : share) * alone,
                 gaps = gap_ * launches;
    Times& times = passes_.back().times;
    times[passes_.back().mark == device::kUpdateMark ? Term::update : term_of(s)] += seconds;
    times[Term::launches] += gaps;
    now_ += seconds + gaps;
    launches_ += launches;
  }
  void start(const Span& s, double alone) {
    launches_ += 1;
    const double seconds = s.exchange.kind == ExchangeKind::message ? 0 : alone;
    double& free = free_[s.exchange.machines > 1 ? 1 : 0];
    free = std::max(free, now_) + seconds;
    const auto at = static_cast<std::size_t>(s.number);
    if (open_.size() <= at) open_.resize(2 * at + 1);
    open_[at] = {free, seconds, now_, true};
  }
  void wait(std::int64_t number) {
    const auto at = static_cast<std::size_t>(number);
    if (at >= open_.size() || !open_[at].open) return;
    const Open o = std::exchange(open_[at], {});
    const double share = o.started == now_ && o.seconds > 0 ? habits_.awaited : 1;
    const double exposed = share * std::max(0.0, o.end - now_), hidden = std::max(0.0, o.seconds - exposed);
    const double more = exposed + hidden * contention_;
    passes_.back().times[Term::communication] += more;
    now_ += more;
  }
  // A pass takes at least as long as the host needs to launch its kernels.
  void finish() {
    const double host = host_launch_ * launches_, spent = passes_.back().times.total();
    if (host > spent) {
      passes_.back().times[Term::launches] += host - spent;
      now_ += host - spent;
    }
    launches_ = 0;
  }

  const Habits habits_;
  const double gap_, host_launch_, contention_;
  std::vector<Pass> passes_;
  std::vector<Open> open_;  // by number
  std::array<double, 2> free_{};
  double now_ = 0, launches_ = 0;
};

// The times of the passes of one kind in a step: of the first, of the last, and of those between.
struct Kind {
  Times first, middle, last;

  const Times& of(std::int64_t i, std::int64_t count) const { return i == 0 ? first : i + 1 == count ? last : middle; }
};

Kind kind_of(const std::vector<Pass>& passes, std::string_view mark) {
  std::vector<const Times*> all;
  for (const Pass& p : passes)
    if (p.mark == mark) all.push_back(&p.times);
  if (all.empty()) return {};
  return {*all.front(), *all[all.size() / 2], *all.back()};
}

// Passes of a stage, and what is not part of one.
struct Stage {
  Kind forward, backward;
  Times rest;
};

Stage stage_of(const std::vector<Pass>& passes) {
  Stage s{kind_of(passes, device::kForwardMark), kind_of(passes, device::kBackwardMark), {}};
  for (const Pass& p : passes)
    if (p.mark != device::kForwardMark && p.mark != device::kBackwardMark) s.rest.add(p.times);
  return s;
}

// The ends of the stages' actions, in the order in which they can run: a forward pass needs that of the stage before, a
// backward pass that of the stage after.
class Pipeline {
 public:
  Pipeline(const std::vector<Stage>& stages, std::int64_t count, double message)
      : stages_(stages), count_(static_cast<int>(count)), message_(message) {
    const int n = static_cast<int>(stages.size());
    for (int s = 0; s < n; ++s) {
      actions_.push_back(model::stage_schedule(n, s, count_));
      forward_.emplace_back(static_cast<std::size_t>(count_), -1.0);
      backward_.emplace_back(static_cast<std::size_t>(count_), -1.0);
    }
    next_.assign(stages.size(), 0);
    now_.assign(stages.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < stages.size(); ++s)
        while (step(s)) moved = true;
    }
  }
  // When a stage has computed its last pass.
  double end(std::size_t s) const { return now_[s]; }

 private:
  bool step(std::size_t s) {
    if (next_[s] == actions_[s].size()) return false;
    const model::StageAction a = actions_[s][next_[s]];
    const auto i = static_cast<std::size_t>(a.micro_batch);
    double begin = now_[s];
    if (!a.backward && s > 0) {
      if (forward_[s - 1][i] < 0) return false;
      begin = std::max(begin, forward_[s - 1][i] + message_);
    }
    if (a.backward && s + 1 < stages_.size()) {
      if (backward_[s + 1][i] < 0) return false;
      begin = std::max(begin, backward_[s + 1][i] + message_);
    }
    const Kind& kind = a.backward ? stages_[s].backward : stages_[s].forward;
    const double seconds = kind.of(a.micro_batch, count_).total();
    (a.backward ? backward_ : forward_)[s][i] = now_[s] = begin + seconds;
    ++next_[s];
    return true;
  }

  const std::vector<Stage>& stages_;
  int count_;
  double message_;
  std::vector<std::vector<model::StageAction>> actions_;
  std::vector<std::vector<double>> forward_, backward_;  // ends, by stage and micro-batch
  std::vector<std::size_t> next_;
  std::vector<double> now_;
};

}  // namespace

std::vector<Pass> passes_of(const Prices& prices, const Record& record) {
  const std::vector<double> seconds = record.prices(prices);
  Streams streams(prices);
  for (std::size_t i = 0; i < record.spans().size(); ++i) streams.run(record.spans()[i], seconds[record.price_of(i)]);
  std::vector<Pass> passes = streams.passes();
  if (prices.habits.repeated_gemms == 0) return passes;
  Times forward;  // whose other kernels are then repeated whole
  for (Pass& p : passes) {
    if (p.mark == device::kForwardMark) forward = p.times;
    if (p.mark != device::kBackwardMark) continue;
    p.times[Term::gemm_forward] += prices.habits.repeated_gemms * forward[Term::gemm_forward];
    p.times[Term::kernels] += forward[Term::kernels];
  }
  return passes;
}

std::map<std::int64_t, double> units_of(const Prices& prices, const Record& record) {
  std::map<std::int64_t, double> units;
  std::int64_t unit = -1, micro_batches = 0;
  const std::vector<double> seconds_of_price = record.prices(prices);
  for (std::size_t i = 0; i < record.spans().size(); ++i) {
    const Span& s = record.spans()[i];
    if (s.kind == SpanKind::mark) unit = s.name == device::kUnitMark ? s.number : -1;
    if (s.kind == SpanKind::mark && s.name == device::kForwardMark) ++micro_batches;
    if (s.kind == SpanKind::operation && unit >= 0)
      units[unit] +=
          seconds_of(prices.machine, prices.corner, s) + s.launches * prices.machine.launch.at(prices.corner.launch);
  }
  for (auto& [number, seconds] : units) seconds /= static_cast<double>(std::max<std::int64_t>(1, micro_batches));
  return units;
}

Habits habits_of(const std::string& name) {
  if (name.empty()) return {};
  if (name == "megatron") return {.awaited = 0.5, .fused = 0.7, .attention = 1, .repeated_gemms = 0, .graphs = true};
  if (name == "fsdp2") return {.awaited = 1, .fused = 1, .attention = 0.55, .repeated_gemms = 0.5, .graphs = false};
  throw Error(cli::flag_name("as") + ": '" + name + "' is not one of megatron, fsdp2");
}

Times step_of(const std::vector<std::vector<Pass>>& stages, const Schedule& schedule) {
  const std::int64_t micro_batches = schedule.micro_batches;
  const double message = schedule.message;
  // Beyond so many micro-batches each adds the time of a steady one.
  const auto simulated = std::min(micro_batches, static_cast<std::int64_t>(4 * stages.size() + 4));
  std::vector<Stage> each;
  for (const std::vector<Pass>& passes : stages) each.push_back(stage_of(passes));
  const Pipeline whole(each, simulated, message);
  std::size_t last = 0;
  for (std::size_t s = 0; s < each.size(); ++s)
    if (whole.end(s) + each[s].rest.total() > whole.end(last) + each[last].rest.total()) last = s;
  double end = whole.end(last);
  Times times = each[last].rest;
  for (std::int64_t i = 0; i < simulated; ++i) {
    times.add(each[last].forward.of(i, simulated));
    times.add(each[last].backward.of(i, simulated));
  }
  if (micro_batches > simulated) {
    const Pipeline fewer(each, simulated - 1, message);
    const auto more = static_cast<double>(micro_batches - simulated);
    end += more * (whole.end(last) - fewer.end(last));
    times.add(each[last].forward.middle, more);
    times.add(each[last].backward.middle, more);
  }
  const double waits = stages.size() == 1 ? 0 : std::max(0.0, end + each[last].rest.total() - times.total());
  times[Term::bubble] = waits / schedule.virtual_stages;
  if (schedule.virtual_stages > 1)
    times[Term::communication] += 2 * message * static_cast<double>(micro_batches) * (schedule.virtual_stages - 1);
  return times;
}

}  // namespace fp8::plan
