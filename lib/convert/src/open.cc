// Opening checkpoints of every kind.
#include "fp8/convert/open.h"

#include "fp8/base/error.h"
#include "fp8/ckpt/find.h"
#include "fp8/convert/convert.h"
#include "fp8/convert/stored_weight.h"
#include "fp8/model/checkpoint.h"

namespace fp8::convert {
namespace {

// The checkpoint of an argument, every byte checked.
ckpt::Checkpoint open_verified(const std::string& argument) {
  auto of_run = ckpt::open_of_run(argument);
  ckpt::Checkpoint source = of_run ? std::move(of_run->checkpoint) : model::open_checkpoint(argument);
  if (!of_run || !of_run->verified) source.verify();
  return source;
}

}  // namespace

OpenModel open_model(const std::string& argument) {
  ckpt::Checkpoint source = open_verified(argument);
  hf::ModelConfig config = hf::parse_config(source.config(), source.path() + ": /config");
  std::vector<model::Parameter> table = model::parameter_table(config);
  if (holds_codes(source)) {
    check_quantized(source, table);
  } else {
    model::check_weights(source, table);
    for (const model::Parameter& p : table) check_float(source, p);
  }
  model::read_precisions(source, table);
  return {std::move(source), std::move(config), std::move(table)};
}

std::optional<chat::Carried> own_template(const ckpt::Checkpoint& checkpoint) {
  return chat::carried_template(checkpoint.huggingface(), checkpoint.config(), checkpoint.path() + ": /huggingface/");
}

void add_adapter(OpenModel& model, const std::string& folder) {
  if (model.config.lora)
    throw Error(model.source.path() + ": has adapters of rank " + std::to_string(model.config.lora->rank) +
                " already, beside which no others are applied");
  model.adapter.emplace(folder, model.config);
  model.config.lora = model.adapter->lora();
  model.table = model::parameter_table(model.config);
  model::read_precisions(model.source, model.table);
}

}  // namespace fp8::convert
