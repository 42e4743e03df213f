// The flags that --print-config writes.
#include <optional>

#include "checks.h"
#include "fp8/base/error.h"
#include "fp8/model/record.h"
#include "fp8/train/flags.h"
#include "lora.h"
#include "precision_flags.h"
#include "state.h"

namespace fp8::train {
namespace {

// The checkpoint, if it can be opened: without one the flags are printed as given.
std::optional<ckpt::Checkpoint> open_model(const std::string& model) {
  try {
    return model::open_checkpoint(model::resolve_checkpoint_argument(model));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

json::Value printed_config(json::Value flags, const cli::Arguments& a, const std::string& model) {
  if (model == "-") return flags;  // standard input is read once, by the run
  const std::optional<ckpt::Checkpoint> checkpoint = open_model(model);
  if (!checkpoint) return flags;
  const bool wanted = a.has_value("lora-rank") || a.has_value("lora");
  const hf::ModelConfig config = hf::parse_config(checkpoint->config(), checkpoint->path());
  PrecisionConfig precision = fused_precision_of(a);
  const PrecisionConfig given = precision;
  if (wanted || config.lora) resolve_codes(precision, *checkpoint, model::parameter_table(config));
  check_precision(precision);
  if (precision.precision == given.precision && precision.recipe == given.recipe &&
      precision.rowwise_single_copy == given.rowwise_single_copy && precision.e4m3_gradients == given.e4m3_gradients)
    return flags;
  json::Object& o = flags.as_object();
  o.set("precision", std::string(name_of(precision.precision)));
  o.set("recipe", precision.recipe);
  o.set("rowwise-single-copy", precision.rowwise_single_copy);
  o.set("fp8-format", precision.e4m3_gradients ? "e4m3" : "hybrid");
  return flags;
}

}  // namespace fp8::train
