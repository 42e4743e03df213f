/// The configuration of a small model, for tests of tables that change parts of it.
#pragma once

#include "fp8/hf/config.h"

namespace fp8::model {

/// Two layers of a Llama with four heads and two key and value heads.
inline hf::ModelConfig small() {
  hf::ModelConfig c;
  c.vocab_size = 48;
  c.hidden_size = 32;
  c.intermediate_size = 80;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 8;
  return c;
}

}  // namespace fp8::model
