// Opening checkpoints of every kind.
#include "fp8/model/open.h"

#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/model/convert.h"
#include "stored_weight.h"

namespace fp8::model {
namespace {

// The checkpoint at `path`, or the newest valid one of a run.
ckpt::Checkpoint open_source(const std::string& path) {
  std::error_code ignored;
  const bool folder =
      std::filesystem::is_directory(path, ignored) && !std::filesystem::exists(path + "/manifest.json", ignored);
  if (folder && !ckpt::list_steps(path).empty()) {
    std::string damage;
    const auto newest =
        ckpt::newest_valid(path, [&](const ckpt::StepFolder&, const std::string& reason) { damage = reason; });
    if (!newest) throw Error(ckpt::all_damaged(path, damage));
    return open_checkpoint(newest->path);
  }
  ckpt::Checkpoint source = open_checkpoint(path);
  source.verify();
  return source;
}

}  // namespace

OpenModel open_model(const std::string& path) {
  ckpt::Checkpoint source = open_source(path);
  hf::ModelConfig config = hf::parse_config(source.config(), source.path() + ": /config");
  std::vector<Parameter> table = parameter_table(config);
  if (holds_codes(source)) {
    check_quantized(source, table);
  } else {
    check_weights(source, table);
    for (const Parameter& p : table) check_float(source, p);
  }
  read_precisions(source, table);
  return {std::move(source), std::move(config), std::move(table)};
}

void add_adapter(OpenModel& model, const std::string& folder) {
  if (model.config.lora)
    throw Error(model.source.path() + ": has adapters of rank " + std::to_string(model.config.lora->rank) +
                " already, beside which no others are applied");
  model.adapter.emplace(folder, model.config);
  model.config.lora = model.adapter->lora();
  model.table = parameter_table(model.config);
  read_precisions(model.source, model.table);
}

}  // namespace fp8::model
