// Opening checkpoints of every kind.
#include "fp8/convert/open.h"

#include <utility>

#include "fp8/base/error.h"
#include "fp8/chat/stored.h"
#include "fp8/ckpt/find.h"
#include "fp8/convert/convert.h"
#include "fp8/convert/stored_weight.h"
#include "fp8/hf/folder.h"
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

TokenizerFiles tokenizer_files(const ckpt::Checkpoint& checkpoint, const std::string& adapter) {
  TokenizerFiles out{checkpoint.huggingface(), own_template(checkpoint)};
  if (adapter.empty()) return out;
  const std::string beside = checkpoint.path() + ": /huggingface/";
  const std::map<std::string, std::string> texts = hf::tokenizer_texts(adapter);
  if (std::optional<chat::Carried> trained = chat::carried_template(texts, {}, adapter + "/")) {
    chat::put_jinja(out.texts, trained->jinja, beside);
    out.own_template = std::move(trained);
  }
  const std::optional<std::string> end = chat::special_tokens_of(texts, adapter + "/").eos;
  if (end) chat::put_end_token(out.texts, *end, beside);
  return out;
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
