// config.json of Hugging Face: an accepted file is written and read back as the same model.
#include "fp8/hf/config.h"

#include "fp8/json/json.h"
#include "fuzz.h"

FP8_FUZZ(config) {
  using namespace fp8;
  return fuzz::judge([&] {
    const hf::ModelConfig config =
        hf::parse_config(json::parse(fuzz::text_of(data, size), "config.json"), "config.json");
    fuzz::require(hf::same_model(hf::parse_config(hf::to_json(config), "again"), config), "a model reads back");
    if (config.head_dim <= 4096)
      fuzz::require(std::ssize(hf::rope_inv_freq(config)) == config.head_dim / 2, "a frequency for each pair");
  });
}
