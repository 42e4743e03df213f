// Tokens that end a text, from the documents of a checkpoint.
#include "fp8/generate/ends.h"

#include <map>
#include <optional>

#include "fp8/hf/export.h"
#include "fp8/json/json.h"

namespace fp8::generate {
namespace {

constexpr const char* kGenerationConfig = "generation_config.json";

}  // namespace

std::vector<std::int64_t> end_tokens(const ckpt::Checkpoint& checkpoint, const hf::ModelConfig& config,
                                     const Codec* codec, const std::string& template_end) {
  std::vector<std::int64_t> more;
  const auto add = [&](const std::string& token) {
    const std::optional<std::uint32_t> id = codec->tokenizer()->id_of(token);
    if (id) more.push_back(*id);
  };
  if (codec != nullptr && codec->tokenizer() != nullptr) {
    if (codec->special().eos) add(*codec->special().eos);
    if (!template_end.empty()) add(template_end);
  }
  const std::string what = checkpoint.path() + ": /huggingface/" + kGenerationConfig;
  const std::map<std::string, std::string> texts = checkpoint.huggingface();
  const auto found = texts.find(kGenerationConfig);
  const json::Value stored = found == texts.end() ? json::Value() : json::parse(found->second, what);
  return hf::end_tokens_of(hf::generation_config(config, stored, more, what).as_object(), what);
}

}  // namespace fp8::generate
