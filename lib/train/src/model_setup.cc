// Resolving and loading a model.
#include "fp8/train/model_setup.h"

#include "fp8/settings/checks.h"

namespace fp8::train {

ModelSetup resolve_model(const ModelRequest& request, const hf::ModelConfig& config, const ckpt::Checkpoint& start,
                         const ckpt::Checkpoint& recorded, const data::TokenFile& tokens) {
  ModelSetup s;
  s.precision = request.precision;
  settings::take_recipe_of_codes(s.precision, start, model::parameter_table(config));
  settings::check_fp8_flags(s.precision);
  settings::check_precision(s.precision);
  settings::check_vocabulary(tokens, config);
  s.tokenizer = settings::tokenizer_of(start, request.any_tokenizer);
  s.notes.push_back(settings::check_tokenizer(tokens, start, s.tokenizer, request.any_tokenizer));
  s.length = settings::resolved_length(request.seq_length, tokens.info(), config);
  s.notes.push_back(settings::note_of_length(s.length, config));
  settings::check_micro_batch(request.batch_size, s.length);
  s.table = settings::table_with_precisions(config, s.precision, start, recorded);
  s.notes.push_back(settings::note_of_fusion(s.precision, s.table));
  s.notes.push_back(settings::note_of_routers(s.precision, s.table));
  s.model_spec.config = config;
  s.model_spec.table = settings::active_table(s.table, s.precision);
  s.model_spec.store = settings::store_options(s.precision, nullptr);
  s.model_spec.attention = s.precision.attention;
  return s;
}

ModelSetup resolve_model(const settings::EvalConfig& config, const ckpt::Checkpoint& checkpoint,
                         const data::TokenFile& tokens) {
  return resolve_model(ModelRequest::of(config), hf::parse_config(checkpoint.config(), checkpoint.path()), checkpoint,
                       checkpoint, tokens);
}

std::optional<std::string> load_model(shard::ShardedModel& model, comm::Communicator& host_comm,
                                      const ckpt::Checkpoint& checkpoint, const settings::PrecisionConfig& precision,
                                      bool moments, const settings::AdapterValues& adapters) {
  std::optional<std::string> damage = state::load(model, host_comm, checkpoint, moments, adapters);
  if (!damage && !settings::has_scales_of(checkpoint, precision)) model.store.require_calibration();
  return damage;
}

}  // namespace fp8::train
