// Resolving and loading a model.
#include "fp8/train/model_setup.h"

#include "fp8/settings/checks.h"
#include "fp8/settings/mesh.h"
#include "run_template.h"

namespace fp8::train {

namespace {

// The precision of the settings, or of FP8 codes in `start`.
settings::PrecisionConfig resolved_precision(settings::PrecisionConfig precision, const hf::ModelConfig& config,
                                             const ckpt::Checkpoint& start) {
  settings::take_recipe_of_codes(precision, start, model::parameter_table(config));
  settings::check_fp8_flags(precision);
  settings::check_precision(precision);
  return precision;
}

// Sets the parameters and the model for the precision and the length that are set.
void resolve_parameters(const hf::ModelConfig& config, const ckpt::Checkpoint& start, const ckpt::Checkpoint& recorded,
                        ModelSetup& s) {
  s.table = settings::table_with_precisions(config, s.precision, start, recorded);
  s.notes.push_back(settings::note_of_fusion(s.precision, s.table));
  s.notes.push_back(settings::note_of_routers(s.precision, s.table));
  s.model_spec.config = config;
  s.model_spec.table = settings::active_table(s.table, s.precision);
  s.model_spec.store = settings::store_options(s.precision, nullptr);
  s.model_spec.execution = s.precision.execution;
}

}  // namespace

ModelSetup resolve_model(const ModelRequest& request, const hf::ModelConfig& config, const ckpt::Checkpoint& start,
                         const ckpt::Checkpoint& recorded, const data::TokenFile& tokens) {
  ModelSetup s;
  s.precision = resolved_precision(request.precision, config, start);
  settings::check_vocabulary(tokens, config);
  s.tokenizer = settings::tokenizer_of(start, request.any_tokenizer);
  s.notes.push_back(settings::check_tokenizer(tokens, start, s.tokenizer, request.any_tokenizer));
  s.length = settings::resolved_length(request.seq_length, tokens.info(), config);
  s.notes.push_back(settings::note_of_length(s.length, config));
  settings::check_micro_batch(request.batch_size, s.length);
  resolve_parameters(config, start, recorded, s);
  return s;
}

ModelSetup resolve_model(const ModelRequest& request, const ckpt::Checkpoint& checkpoint) {
  const hf::ModelConfig config = hf::parse_config(checkpoint.config(), checkpoint.path());
  ModelSetup s;
  s.precision = resolved_precision(request.precision, config, checkpoint);
  s.length = request.seq_length;
  config.check_sequence_length(s.length);
  settings::check_micro_batch(request.batch_size, s.length);
  resolve_parameters(config, checkpoint, checkpoint, s);
  settings::check_some_fp8(s.model_spec.table, s.precision, false);
  s.model_spec.store.training = false;
  return s;
}

ModelSetup resolve_model(const settings::EvalConfig& config, const ckpt::Checkpoint& checkpoint,
                         const data::TokenFile& tokens) {
  ModelSetup s = resolve_model(ModelRequest::of(config), hf::parse_config(checkpoint.config(), checkpoint.path()),
                               checkpoint, checkpoint, tokens);
  s.notes.push_back(note_of_template(tokens, checkpoint));
  return s;
}

comm::MeshShape mesh_of(const settings::Config& config, std::int64_t ranks, const std::vector<ModelSetup>& models,
                        const MeshUse& use) {
  const auto refusal = [&](std::int64_t tp) {
    std::string why;
    for (const ModelSetup& m : models) {
      const shard::ModelSpec& spec = m.model_spec;
      if (why.empty())
        why = settings::TensorDivision{m.precision, use.sequences * m.length, spec.config, spec.table, use.statistics}
                  .refusal(tp);
    }
    return why;
  };
  settings::MeshLimits limits = settings::mesh_limits(config.model, models.front().model_spec.config, refusal);
  if (!use.stages) limits.layers = 1;
  return settings::fitting_mesh(config, ranks, limits, use.tool);
}

std::optional<std::string> load_model(shard::ShardedModel& model, comm::Communicator& host_comm,
                                      const ckpt::Checkpoint& checkpoint, const settings::PrecisionConfig& precision,
                                      bool moments, const settings::AdapterValues& adapters) {
  std::optional<std::string> damage = state::load(model, host_comm, checkpoint, moments, adapters);
  if (!damage && !settings::has_scales_of(checkpoint, precision)) model.store.scales().require_calibration();
  return damage;
}

}  // namespace fp8::train
