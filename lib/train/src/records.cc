// Records and tables of a run.
#include "fp8/train/records.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "fp8/base/cpu.h"
#include "fp8/base/expert_name.h"
#include "fp8/base/memory.h"
#include "fp8/base/text.h"
#include "fp8/model/checkpoint.h"
#include "run_setup.h"

namespace fp8::train {
namespace {

json::Value recipe_of(const settings::PrecisionConfig& p) {
  return p.precision == settings::Precision::fp8 ? json::Value(p.recipe_text()) : json::Value();
}

// How FP8 products were summed; null if a GPU's FP8 units summed them, or there were none.
json::Value accumulate_of(const settings::PrecisionConfig& p, device::DeviceType device) {
  return emulated(p, device) ? json::Value(std::string(name_of(p.accumulation))) : json::Value();
}

// Whether the sums were compared with those of the chip: with one scale per tensor they were, with scales per row they
// were not. Null if sums of a tensor core are not emulated.
json::Value accumulate_proven(const settings::PrecisionConfig& p) {
  if (p.precision != settings::Precision::fp8 || p.accumulation == gemm::Accumulation::f32) return {};
  const auto by_tensor = [](const quant::Cast& a, const quant::Cast& b) {
    return a.granularity == quant::Granularity::tensor && b.granularity == quant::Granularity::tensor;
  };
  return std::ranges::all_of(p.recipes_used(), [&](const quant::Recipe* r) {
    return by_tensor(r->forward.x, r->forward.w) && by_tensor(r->dgrad.dy, r->dgrad.w) &&
           by_tensor(r->wgrad.dy, r->wgrad.x);
  });
}

std::string optimizer_of(const optim::Settings& optimizer) {
  return optimizer.algorithm == optim::Algorithm::muon ? "muon" : "adamw";
}

// The attention that runs: "cpu", "plain", or the library of the fused kernels.
std::string attention_of(const settings::PrecisionConfig& p, device::DeviceType device) {
  if (device == device::DeviceType::host) return "cpu";
  return p.execution.attention.kernels == ops::AttentionKernels::plain ? "plain" : ops::attention_library();
}

// Whether a step has the same bits in every run on the same machine.
bool deterministic(const settings::PrecisionConfig& p, device::DeviceType device) {
  return device == device::DeviceType::host || p.execution.attention.kernels == ops::AttentionKernels::plain ||
         p.execution.attention.deterministic;
}

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// The precision in which a run computes a linear.
std::string precision_of(const model::LinearRow& linear, const settings::PrecisionConfig& of_run) {
  using settings::Precision;
  if (!linear.fp8) return std::string(name_of(of_run.precision == Precision::fp32 ? Precision::fp32 : Precision::bf16));
  return quant::find_recipe(linear.recipe.empty() ? of_run.recipe : linear.recipe).fp4() ? "fp4" : "fp8";
}

// The counts of FP4 GEMMs, if some are planned.
void add_fp4(const settings::PrecisionConfig& precision, const gemm::Counts& gemms, json::Object& record) {
  if (precision.precision != settings::Precision::fp8 || !precision.has_nvfp4()) return;
  record.set("fp4_gemms", gemms.linear(gemm::OperandKind::fp4).gemms);
  record.set("fp4_flop_share", gemms.share(gemm::OperandKind::fp4));
  record.set("fp4_flop_share_total", gemms.share_total(gemm::OperandKind::fp4));
}

// The GEMMs of an FP8 linear that are FP8, if not all; else empty.
std::string some_gemms(const model::LinearRow& linear) {
  return !linear.fp8 || linear.gemms == quant::GemmSet{} ? "" : name_of(linear.gemms);
}

// The remark on a linear in the table: the reason, or its FP8 GEMMs and its fusion if any.
std::string remark_of(const model::LinearRow& r) {
  if (!r.fp8) return r.reason;
  std::string remark = r.recipe.empty() ? "" : "recipe " + r.recipe;
  const auto add = [&remark](const std::string& text) {
    if (!text.empty()) remark += (remark.empty() ? "" : "; ") + text;
  };
  add(some_gemms(r));
  if (!r.fused_with.empty()) add("one linear with " + r.fused_with);
  return remark;
}

// A name with * for the numbers of its layer and expert, so that equal linears share a line.
std::string family_of(const std::string& linear) {
  std::string name = glob_of_experts(linear);
  const std::string prefix = "model.layers.";
  if (name.rfind(prefix, 0) != 0) return name;
  return prefix + "*" + name.substr(std::min(name.find('.', prefix.size()), name.size()));
}

// What ranks sent to each other, in all and by what they are divided along and the type; nothing for one rank.
void add_sent(const comm::SentBytes& sent, json::Object& record) {
  if (sent.total() == 0) return;
  record.set("sent_bytes", sent.total());
  for (std::size_t along = 0; along < comm::SentBytes::kAlongs; ++along)
    for (std::size_t element = 0; element < comm::SentBytes::kElements; ++element) {
      const auto a = static_cast<comm::Along>(along);
      const auto e = static_cast<comm::Element>(element);
      if (const std::int64_t bytes = sent.of(a, e); bytes > 0)
        record.set("sent_bytes_" + std::string(name_of(a)) + "_" + std::string(name_of(e)), bytes);
    }
}

// The losses that balance experts, if they are asked for, and the loads of a step; passes only if ranks share experts.
void add_routing(const settings::RunConfig& config, const shard::RoutingResult& r, json::Object& record) {
  if (config.aux_loss > 0) record.set("aux_loss", r.aux_loss);
  if (config.z_loss > 0) record.set("z_loss", r.z_loss);
  record.set("expert_load_max", r.largest_load());
  record.set("expert_idle", r.idle());
  if (config.ep > 1) record.set("expert_passes", r.passes);
}

// The sizes of the update, if they were measured.
void add_update_rms(const StepResult& r, json::Object& record) {
  constexpr std::array<const char*, kRoles> kNames{"embedding", "norm", "bias", "linear", "head", "adapter", "router"};
  for (std::size_t role = 0; role < kNames.size(); ++role)
    if (r.update_rms[role]) record.set("update_rms_" + std::string(kNames[role]), *r.update_rms[role]);
}

}  // namespace

bool emulated(const settings::PrecisionConfig& p, device::DeviceType device) {
  const bool everywhere = device == device::DeviceType::host || p.emulate;
  return std::ranges::any_of(p.recipes_used(),
                             [&](const quant::Recipe* r) { return everywhere || r->emulated_everywhere(); });
}

std::string note_of_emulation(const settings::PrecisionConfig& precision, device::DeviceType device) {
  if (!emulated(precision, device)) return "";
  const std::vector<const quant::Recipe*> recipes = precision.recipes_used();
  const auto four = std::ranges::count_if(recipes, &quant::Recipe::fp4);
  const std::string formats = four == 0 ? "FP8" : four == std::ssize(recipes) ? "FP4" : "FP8 and FP4";
  return formats + (four != 0 && four != std::ssize(recipes) ? " are" : " is") + " emulated: losses are those of " +
         formats + ", speeds are not\n";
}

json::Value mesh_record(const comm::MeshShape& shape) {
  return json::object({{"dp_replicate", shape.dp_replicate},
                       {"dp_shard", shape.dp_shard},
                       {"pp", shape.pp},
                       {"ep", shape.ep},
                       {"tp", shape.tp}});
}

json::Value run_record(const RunSetup& s, const json::Value& memory_plan, const DeviceSetup& work) {
  const settings::RunConfig& config = s.config;
  const hf::ModelConfig& model = s.model_spec.config;
  const std::vector<model::Parameter>& table = s.model_spec.table;
  json::Array linears;
  for (const model::LinearRow& l : model::linear_rows(model, table)) {
    const std::string precision = precision_of(l, config.precision);
    json::Value linear = json::object({{"name", l.name}, {"precision", precision}, {"reason", l.reason}});
    if (const std::string gemms = some_gemms(l); !gemms.empty()) linear.as_object().set("fp8_gemms", gemms);
    if (l.fp8 && !l.recipe.empty()) linear.as_object().set("recipe", l.recipe);
    linears.push_back(std::move(linear));
  }
  json::Array changed;
  for (const settings::SettingChange& c : s.changes)
    changed.push_back(json::object({{"name", c.name}, {"old", c.old}, {"new", c.value}}));
  json::Value record = json::object({{"type", "run"},
                                     {"version", config.tool_version},
                                     {"config", config.flags},
                                     {"settings", s.settings},
                                     {"mesh", mesh_record(work.mesh().shape())},
                                     {"model_path", config.model},
                                     {"model", hf::to_json(model)},
                                     {"parameters", model::parameter_count(table)},
                                     {"trainable_parameters", model::trainable_count(table)},
                                     {"first_step", s.position.step + 1},
                                     {"steps", config.steps},
                                     {"tokens_per_step", s.tokens_per_step()},
                                     {"documents", s.settings.as_object().at("documents")},
                                     {"precision", std::string(name_of(config.precision.precision))},
                                     {"recipe", recipe_of(config.precision)},
                                     {"emulated", emulated(config.precision, work.type())},
                                     {"accumulate", accumulate_of(config.precision, work.type())},
                                     {"accumulate_proven", accumulate_proven(config.precision)},
                                     {"optimizer", optimizer_of(config.optimizer)},
                                     {"attention", attention_of(config.precision, work.type())},
                                     {"deterministic", deterministic(config.precision, work.type())},
                                     {"device", work.name()},
                                     {"cpu_isa", name_of(cpu_isa())},
                                     {"memory_plan", memory_plan},
                                     {"linears", std::move(linears)}});
  if (!changed.empty()) record.as_object().set("changed", std::move(changed));
  return record;
}

json::Value step_record(const settings::RunConfig& config, device::DeviceType device, const StepResult& r,
                        const Position& after, std::int64_t tokens_per_step, double flops_per_token,
                        std::int64_t memory_peak_bytes) {
  // A step without targets computes nothing, so it has no rate.
  const double tokens_per_s =
      r.masked ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(tokens_per_step) / r.seconds;
  const auto share_of = [&r](std::int64_t part) {
    return r.casts_counted ? json::Value(share(part, r.casts.elements)) : json::Value();
  };
  json::Value v = json::object({{"type", "step"},
                                {"step", after.step},
                                {"tokens", after.tokens},
                                {"loss", r.loss},
                                {"grad_norm", r.grad_norm},
                                {"lr", r.lr},
                                {"step_s", r.seconds},
                                {"data_wait_s", r.data_seconds},
                                {"tokens_per_s", tokens_per_s},
                                {"model_tflops", 1e-12 * flops_per_token * tokens_per_s},
                                {"memory_peak_bytes", memory_peak_bytes},
                                {"precision", std::string(name_of(config.precision.precision))},
                                {"recipe", recipe_of(config.precision)},
                                {"emulated", emulated(config.precision, device)},
                                {"fp8_flop_share", r.gemms.share(gemm::OperandKind::fp8)},
                                {"fp8_flop_share_total", r.gemms.share_total(gemm::OperandKind::fp8)},
                                {"fp8_gemms", r.gemms.linear(gemm::OperandKind::fp8).gemms},
                                {"bf16_gemms", r.gemms.linear(gemm::OperandKind::bf16).gemms},
                                {"f32_gemms", r.gemms.linear(gemm::OperandKind::f32).gemms},
                                {"saturated_share", share_of(r.casts.saturated)},
                                {"underflow_share", share_of(r.casts.underflowed)},
                                {"skipped", r.skipped}});
  add_fp4(config.precision, r.gemms, v.as_object());
  add_sent(r.sent, v.as_object());
  add_update_rms(r, v.as_object());
  if (r.routing) add_routing(config, *r.routing, v.as_object());
  if (r.replayed) v.as_object().set("replayed", true);
  if (r.calibrated) v.as_object().set("calibrated", true);
  if (r.masked) v.as_object().set("masked", true);
  return v;
}

std::vector<json::Value> expert_records(const shard::RoutingResult& routing, hf::Family family) {
  const std::string block = hf::expert_names(family).block;
  std::vector<json::Value> records;
  for (std::int64_t layer = 0; layer * routing.experts < std::ssize(routing.rows); ++layer) {
    const std::span rows =
        std::span(routing.rows)
            .subspan(static_cast<std::size_t>(layer * routing.experts), static_cast<std::size_t>(routing.experts));
    if (std::ranges::all_of(rows, [](std::int64_t n) { return n == 0; })) continue;  // a dense layer
    records.push_back(json::object({{"type", "experts"},
                                    {"layer", layer},
                                    {"module", "model.layers." + std::to_string(layer) + "." + block + ".experts"},
                                    {"rows", json::Array(rows.begin(), rows.end())}}));
  }
  return records;
}

json::Value eval_record(std::int64_t step, const LossSum& sum, const settings::PrecisionConfig& precision,
                        device::DeviceType device) {
  const double loss = sum.loss / static_cast<double>(sum.targets);  // NaN, written as null, if there is no target
  json::Value v = json::object({{"type", "eval"}});
  json::Object& o = v.as_object();
  if (step >= 0) o.set("step", step);
  o.set("tokens", sum.targets);
  o.set("loss", loss);
  o.set("perplexity", std::exp(loss));
  o.set("precision", std::string(name_of(precision.precision)));
  o.set("recipe", recipe_of(precision));
  o.set("emulated", emulated(precision, device));
  if (precision.accumulation != gemm::Accumulation::f32) o.set("accumulate", accumulate_of(precision, device));
  if (step < 0) o.set("attention", attention_of(precision, device));
  if (precision.fuse_projections) o.set("fuse_projections", true);
  if (precision.precision == settings::Precision::fp8) {
    o.set("fp8_gemms", sum.gemms.linear(gemm::OperandKind::fp8).gemms);
    o.set("fp8_flop_share", sum.gemms.share(gemm::OperandKind::fp8));
    o.set("fp8_flop_share_total", sum.gemms.share_total(gemm::OperandKind::fp8));
    add_fp4(precision, sum.gemms, o);
  }
  return v;
}

json::Value sample_record(std::int64_t step, const std::string& prompt, const SampledText& text, double seconds) {
  return json::object({{"type", "sample"},
                       {"step", step},
                       {"prompt", prompt},
                       {"text", text.text},
                       {"ids", json::Array(text.ids.begin(), text.ids.end())},
                       {"seconds", seconds}});
}

std::string precision_table(const hf::ModelConfig& model, const std::vector<model::Parameter>& table,
                            const settings::PrecisionConfig& precision) {
  struct Line {
    std::string name, shape, precision, reason;
    int count;
  };
  std::vector<Line> lines;
  for (const model::LinearRow& r : model::linear_rows(model, table)) {
    const Line line{family_of(r.name), std::to_string(r.shape[0]) + "x" + std::to_string(r.shape[1]),
                    precision_of(r, precision), remark_of(r), 1};
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& l) {
      return l.name == line.name && l.shape == line.shape && l.precision == line.precision && l.reason == line.reason;
    });
    if (same == lines.end()) {
      lines.push_back(line);
    } else {
      ++same->count;
    }
  }
  std::string text;
  std::size_t name_width = 0, shape_width = 0;
  for (const Line& l : lines)
    name_width = std::max(name_width, l.name.size()), shape_width = std::max(shape_width, l.shape.size());
  for (const Line& l : lines) {
    text += "  " + l.precision + std::string(6 - l.precision.size(), ' ') + l.name +
            std::string(name_width - l.name.size() + 2, ' ') + l.shape +
            std::string(shape_width - l.shape.size() + 2, ' ') + "x" + std::to_string(l.count) +
            (l.reason.empty() ? "" : "  " + l.reason) + "\n";
  }
  return text;
}

std::int64_t peak_memory(const shard::ShardedModel& model) {
  if (model.ctx.device != device::DeviceType::host)
    return static_cast<std::int64_t>(model.arena.peak() + model.engine.scratch_bytes());
  return peak_resident_memory();
}

json::Value memory_used(const shard::ShardedModel& model) {
  json::Object o;
  for (const device::Usage& u : model.arena.usage_at_peak()) o.set(u.category, u.bytes);
  o.set("matmul scratch", model.engine.scratch_bytes());
  o.set("total", model.arena.peak() + model.engine.scratch_bytes());
  return o;
}

}  // namespace fp8::train
