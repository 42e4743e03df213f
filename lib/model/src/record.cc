// Records in pipes, provenance, and the distinction of checkpoints from other files.
#include "fp8/model/record.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/ckpt/find.h"
#include "fp8/h5/user_block.h"
#include "fp8/hf/adapter.h"
#include "fp8/hf/folder.h"
#include "fp8/hf/tokenizer.h"
#include "fp8/json/json.h"
#include "fp8/model/presets.h"

namespace fp8::model {
namespace {

// A word quoted for a POSIX shell.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,/:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// Hint of a message about standard input without a checkpoint record.
const std::vector<Hint> kNeedsJson{{"json", "with the previous tool of the pipe"}};

// Throws Error if `path`, which does not exist, is the name of a preset.
void refuse_preset(const std::string& path) {
  std::vector<std::string> presets;
  try {
    presets = preset_names();
  } catch (const Error&) {
    return;  // not installed
  }
  if (std::find(presets.begin(), presets.end(), path) != presets.end())
    throw Error(path + ": no such file; it is the name of a preset, whose model fp8-init makes: fp8-init " + path +
                " -o " + path + ".h5");
}

// Whether a folder has files of weights as models on the Hub have them.
bool holds_weights(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (const auto kind = entry.path().extension(); kind == ".safetensors" || kind == ".bin") return true;
  return false;
}

}  // namespace

Origin origin_of(const std::string& tool, const std::string& version, int argc, const char* const* argv) {
  Origin origin{.tool = tool, .version = version, .command = tool};
  for (int i = 1; i < argc; ++i) origin.command.append(1, ' ').append(quoted(argv[i]));
  return origin;
}

json::Value with_origin(const json::Value& provenance, const Origin& origin) {
  return ckpt::append_provenance(provenance, origin.tool, origin.version, origin.command);
}

json::Value checkpoint_record(const std::string& path) {
  return json::object({{"type", "checkpoint"}, {"path", path}});
}

std::string resolve_checkpoint_argument(const std::string& argument, int fd) {
  if (argument != "-") return argument;
  std::optional<std::string> path;
  try {
    json::LineReader lines(fd, "standard input");
    while (const std::optional<json::Value> value = lines.next()) {
      if (!value->is_object()) continue;
      const json::Object& record = value->as_object();
      const json::Value* type = record.find("type");
      if (type == nullptr || !type->is_string() || type->as_string() != "checkpoint") continue;
      path = record.get_string("path", "standard input: checkpoint record");
    }
  } catch (const Error& e) {
    throw Error(std::string(e.what()) + " (a checkpoint record was expected)", kNeedsJson);
  }
  if (!path) throw Error("standard input: no record names a checkpoint", kNeedsJson);
  if (path->find('\0') != std::string::npos) throw Error("standard input: the path of the record has a NUL character");
  return *path;
}

ckpt::Checkpoint open_checkpoint(const std::string& argument) {
  namespace fs = std::filesystem;
  if (auto of_run = ckpt::open_of_run(argument)) return std::move(of_run->checkpoint);
  std::error_code ignored;
  const bool folder = fs::is_directory(argument, ignored);
  const std::string name = fs::canonical(argument, ignored).filename().string();  // links resolved; empty if missing
  if (name.ends_with(".tmp") && (folder || name.starts_with('.')))
    throw Error(argument + ": not a checkpoint: left by an interrupted save");
  if (folder && !fs::exists(fs::path(argument) / "manifest.json", ignored) && hf::Folder::looks_like(argument))
    throw Error(argument + ": a Hugging Face folder, not a checkpoint: convert it with fp8-convert");
  if (folder && fs::exists(fs::path(argument) / hf::kAdapterConfig, ignored))
    throw Error(argument +
                ": a PEFT adapter without its model: convert the model with fp8-convert, and give fp8-step " +
                "or fp8-generate the adapter with --lora " + argument);
  if (folder && !fs::exists(fs::path(argument) / "manifest.json", ignored) && holds_weights(argument))
    throw Error(argument + ": weights without a config.json: not a Hugging Face folder, nor a checkpoint; " +
                "put the model's config.json beside them");
  if (!folder && argument.ends_with(".json"))
    throw Error(argument + ": a JSON file, not a checkpoint: give it to fp8-init for a new model, or the folder of a " +
                "trained one, which has the config.json, to fp8-convert; fp8-plan takes it as it is");
  if (is_token_file(argument)) throw Error(argument + ": a token file, not a checkpoint");
  if (argument.ends_with(".safetensors"))
    throw Error(argument +
                ": a safetensors file, not a checkpoint: give its folder, which has the config.json, to fp8-convert");
  if (!fs::exists(argument, ignored)) refuse_preset(argument);
  ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(argument);
  checkpoint.hold();
  if (checkpoint.kind() == ckpt::FileKind::training)
    (void)ckpt::position_of(checkpoint);  // digests do not cover validity
  return checkpoint;
}

std::optional<std::string> tokenizer_id(const ckpt::Checkpoint& checkpoint) {
  const std::optional<std::string> text = checkpoint.tokenizer();
  if (!text) return checkpoint.tokenizer_id();
  return hf::parse_tokenizer_identity(*text, checkpoint.path() + ": /tokenizer").digest;
}

bool is_token_file(const std::string& path) { return h5::has_magic(path, h5::kTokensMagic); }

}  // namespace fp8::model
