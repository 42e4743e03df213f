// The folder of a PEFT adapter, for a model of one layer: every value of an accepted one can be read, and its settings
// are those of a checkpoint's configuration. The input is adapter_config.json, a zero byte, and the safetensors file.
#include "fp8/hf/adapter.h"

#include <vector>

#include "fp8/json/json.h"
#include "fuzz.h"

FP8_FUZZ(adapter) {
  using namespace fp8;
  static const hf::ModelConfig model =
      hf::parse_config(json::parse(R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 4, "intermediate_size": 6,
        "num_hidden_layers": 1, "num_attention_heads": 2})",
                                   "model"),
                       "model");
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t end = std::min(text.find('\0'), text.size());
  fuzz::folder().write("adapter/adapter_config.json", std::string(text.substr(0, end)));
  fuzz::folder().write("adapter/adapter_model.safetensors", std::string(text.substr(std::min(end + 1, text.size()))));
  return fuzz::judge([&] {
    const hf::AdapterFolder adapter(fuzz::folder().at("adapter"), model);
    const hf::LoraConfig& lora = adapter.lora();
    for (const std::string& module : lora.targets) {
      const auto [out, in] = hf::linear_extent(model, module);
      std::vector<float> a(static_cast<std::size_t>(lora.rank * in)), b(static_cast<std::size_t>(out * lora.rank));
      adapter.read_rows(module + ".lora_A.weight", 0, lora.rank, a);
      adapter.read_rows(module + ".lora_B.weight", 0, out, b);
    }
    hf::ModelConfig with = model;
    with.lora = lora;
    fuzz::require(hf::parse_config(hf::to_json(with), "again").lora == lora, "the settings read back");
    fuzz::require(!adapter.digest().empty(), "an adapter has a digest");
  });
}
