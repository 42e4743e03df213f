// The tokenizer that a token file is made with: from a file, or from a checkpoint.
#include <filesystem>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/ckpt/find.h"
#include "fp8/data/tokenize.h"
#include "fp8/h5/user_block.h"
#include "fp8/hf/folder.h"
#include "fp8/hf/tokenizer.h"
#include "fp8/json/json.h"
#include "fp8/token/tokenizer.h"

namespace fp8::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBytes = "bytes";
constexpr const char* kSpecialTokens = "tokenizer_config.json";
constexpr json::Limits kLimits{.max_depth = 64, .max_bytes = std::size_t{16} << 20U};

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The checkpoint that `name` stands for; nothing if it is a tokenizer.json or the folder of one.
std::optional<ckpt::Checkpoint> checkpoint_of(const std::string& name) {
  if (is_folder(name) && exists(name + "/tokenizer.json")) return std::nullopt;
  if (auto of_run = ckpt::open_of_run(name)) return std::move(of_run->checkpoint);
  const bool one = is_folder(name) ? exists(name + "/manifest.json") : h5::has_magic(name, h5::kCheckpointMagic);
  return one ? std::optional(ckpt::Checkpoint::open(name)) : std::nullopt;
}

// The configuration beside a tokenizer.json; null without one.
json::Value config_beside(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return exists(path) ? json::parse_file(path, kLimits) : json::Value();
}

// A tokenizer with this text, with the files beside it and the configuration of its model.
DeclaredTokenizer tokenizer_with(std::string file, std::string text, const std::map<std::string, std::string>& texts,
                                 const json::Value& config, const std::string& beside) {
  return {.file = std::move(file),
          .text = std::move(text),
          .special = chat::special_tokens_of(texts, beside),
          .own_template = chat::carried_template(texts, config, beside)};
}

}  // namespace

DeclaredTokenizer read_tokenizer(const std::string& name) {
  DeclaredTokenizer bytes{.id = kBytes, .vocab_size = 256};
  if (name == kBytes) return bytes;
  const std::optional<ckpt::Checkpoint> checkpoint = checkpoint_of(name);
  if (!checkpoint) {
    const std::string file = token::tokenizer_file(name), folder = parent_directory(file);
    return tokenizer_with(file, read_text_file(file, hf::kMaxTokenizerBytes), hf::tokenizer_texts(folder),
                          config_beside(folder), folder + "/");
  }
  std::optional<std::string> text = checkpoint->tokenizer();
  if (!text && checkpoint->tokenizer_id() == kBytes) return bytes;
  if (!text) throw Error(checkpoint->path() + ": has no tokenizer");
  return tokenizer_with(checkpoint->path() + ": /tokenizer", std::move(*text), checkpoint->huggingface(),
                        checkpoint->config(), checkpoint->path() + ": /huggingface/");
}

DeclaredTokenizer declared_tokenizer(const std::string& name) {
  DeclaredTokenizer tokenizer = read_tokenizer(name);
  if (tokenizer.file.empty()) return tokenizer;
  const hf::TokenizerIdentity identity = hf::parse_tokenizer_identity(tokenizer.text, tokenizer.file);
  tokenizer.id = identity.digest;
  tokenizer.vocab_size = identity.vocab_size;
  tokenizer.note = identity.note;
  return tokenizer;
}

}  // namespace fp8::data
