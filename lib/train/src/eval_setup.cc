#include "eval_setup.h"

#include "checks.h"

namespace fp8::train {

EvalSetup resolve(const EvalConfig& config, const ckpt::Checkpoint& checkpoint, const data::TokenFile& tokens) {
  EvalSetup s;
  s.model_spec.config = hf::parse_config(checkpoint.config(), checkpoint.path());
  s.precision = config.precision;
  resolve_codes(s.precision, checkpoint, model::parameter_table(s.model_spec.config));
  check_precision(s.precision);
  s.length = resolved_length(config.seq_length, s.model_spec.config);
  check_micro_batch(config.batch_size, s.length);
  s.model_spec.table =
      active_table(table_with_precisions(s.model_spec.config, s.precision, checkpoint, checkpoint), s.precision);
  s.model_spec.store = store_options(s.precision, nullptr);
  s.model_spec.attention = s.precision.attention;
  check_vocabulary(tokens, s.model_spec.config);
  s.notes = {note_of_fusion(s.precision, s.model_spec.table), note_of_length(s.length, s.model_spec.config),
             check_tokenizer(tokens, checkpoint, tokenizer_of(checkpoint, config.any_tokenizer), config.any_tokenizer)};
  return s;
}

}  // namespace fp8::train
