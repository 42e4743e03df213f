// Source: LLaMA-Factory ff6d4d12, data/parser.py, loader.py, converter.py.
#include "llama_factory_data.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "finish.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/foreign/keys.h"
#include "named_files.h"

namespace fp8::foreign {
namespace {

namespace fs = std::filesystem;

// A column or a tag: its name in dataset_info.json and in --columns, what LLaMA-Factory has without "columns" or
// "tags", and what fp8-tokenize has in alpaca and sharegpt, and in messages. Null: there is none.
struct Name {
  const char* name;
  const char* theirs;
  const char* ours;
  const char* ours_in_messages;
};

constexpr std::array<Name, 6> kColumns = {{{"prompt", "instruction", "instruction", "instruction"},
                                           {"query", "input", "input", "input"},
                                           {"response", "output", "output", "output"},
                                           {"history", nullptr, "history", "history"},
                                           {"messages", "conversations", "conversations", "messages"},
                                           {"system", nullptr, "system", nullptr}}};
constexpr std::array<Name, 5> kTags = {{{"role_tag", "from", "from", "role"},
                                        {"content_tag", "value", "value", "content"},
                                        {"user_tag", "human", "human", "user"},
                                        {"assistant_tag", "gpt", "gpt", "assistant"},
                                        {"system_tag", "system", "system", "system"}}};

// Reads one data set.
class Reader {
 public:
  Reader(Import& import, const Document& info, const std::string& name)
      : import_(import), keys_(info, import.answers), name_(name), at_(escaped(name)) {}

  DataSource read(const std::string& folder, bool pretraining) {
    find_files(folder);
    format(pretraining);
    if (pretraining) {
      text_column();
    } else {
      columns("columns", kColumns);
      columns("tags", kTags);
    }
    refuse_rest();
    return std::move(source_);
  }

 private:
  static std::string escaped(const std::string& name) {
    std::string all;
    for (const char c : name) {
      if (c == '.' || c == '[' || c == ']' || c == '\\') all += '\\';
      all += c;
    }
    return all;
  }
  std::string path(const std::string& key) const { return at_ + "." + key; }
  void miss(const std::string& reason) { import_.missing.push_back("data: " + name_ + ": " + reason); }

  void find_files(const std::string& folder) {
    const std::optional<std::string> file = keys_.text(path("file_name"));
    keys_.answer(path("file_name"), Class::mapped, "");
    for (const char* hub : {"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"}) {
      const std::optional<std::string> url = keys_.text(path(hub));
      if (url && source_.files.empty() && !file)
        miss("is at " + excerpt(*url) + ", not on this machine; fetch it as JSON or JSON Lines into " + folder +
             " and name it as \"file_name\" in dataset_info.json");
      keys_.answer(path(hub), Class::no_effect, "", "nothing is downloaded");
      if (url && !file) return;
    }
    if (!file) return miss("has no \"file_name\" in dataset_info.json");
    const fs::path local = fs::path(folder) / *file;
    std::error_code ignored;
    if (fs::is_directory(local, ignored)) {
      for (fs::directory_iterator entry(local, ignored), end; !ignored && entry != end; entry.increment(ignored))
        source_.files.push_back(entry->path().string());
      std::ranges::sort(source_.files);
    } else {
      source_.files.push_back(local.string());
    }
    for (const std::string& one : source_.files) {
      const std::string extension = fs::path(one).extension().string();
      if (extension != ".json" && extension != ".jsonl") miss(one + ": only JSON and JSON Lines are read; convert it");
    }
  }

  void format(bool pretraining) {
    const std::string formatting = keys_.text(path("formatting")).value_or("alpaca");
    if (formatting == "openai") {
      source_.format = "messages";
      keys_.answer(path("formatting"), Class::differs, "--from messages",
                   "the line \"detailed thinking off\", which LLaMA-Factory adds to the system prompt, is not added");
    } else if (formatting == "alpaca" || formatting == "sharegpt") {
      source_.format = formatting;
      keys_.answer(path("formatting"), Class::mapped, "--from " + formatting);
    } else {
      keys_.refuse(path("formatting"), "'" + excerpt(formatting) + "' is not one of alpaca, sharegpt, openai");
    }
    if (pretraining) source_.format = "jsonl";
    if (pretraining && !source_.files.empty() && fs::path(source_.files.front()).extension() == ".json")
      source_.format = "json";
  }

  // The name that LLaMA-Factory has for a column; nothing if it has none.
  std::optional<std::string> theirs(const std::string& group, const Name& one) const {
    if (!keys_.has(path(group))) return one.theirs == nullptr ? std::nullopt : std::optional(std::string(one.theirs));
    return keys_.text(path(group + "." + one.name));
  }

  // Plain text is in the column of prompts.
  void text_column() {
    const std::string column = theirs("columns", kColumns[0]).value_or("instruction");
    if (column != "text") source_.columns.push_back("text=" + column);
    keys_.answer(path("columns.prompt"), Class::mapped, "--columns text=" + column);
  }

  template <std::size_t N>
  void columns(const std::string& group, const std::array<Name, N>& names) {
    const bool alpaca = source_.format == "alpaca", messages = source_.format == "messages";
    for (const Name& one : names) {
      const std::string name = one.name;
      const bool of_alpaca = name == "prompt" || name == "query" || name == "response" || name == "history";
      if (name != "system" && alpaca != of_alpaca) continue;
      const std::string found = theirs(group, one).value_or("");
      const char* const fallback = messages ? one.ours_in_messages : one.ours;
      std::string here;
      if (found != (fallback == nullptr ? "" : fallback)) {
        here = name;
        here += '=' + found;
        source_.columns.push_back(here);
      }
      keys_.answer(path(group + "." + name), Class::mapped, here.empty() ? "" : "--columns " + here);
    }
  }

  void refuse_rest() {
    if (keys_.flag(path("ranking")).value_or(false))
      keys_.answer(path("ranking"), Class::no_counterpart, "", "preferences are not learned");
    constexpr Class kNo = Class::no_counterpart;
    for (const auto& [key, why] :
         {std::pair("columns.tools", "calls of tools are not rendered"),
          {"columns.images", "images are not read"},
          {"columns.videos", "videos are not read"},
          {"columns.audios", "sounds are not read"},
          {"columns.chosen", "preferences are not learned"},
          {"columns.rejected", "preferences are not learned"},
          {"columns.kto_tag", "preferences are not learned"},
          {"tags.observation_tag", "results of tools are not rendered; such records are left out"},
          {"tags.function_tag", "calls of tools are not rendered; such records are left out"},
          {"num_samples", "a random selection of records is not taken; --max-samples takes the first"},
          {"subset", "is a part of a data set of a hub"},
          {"folder", "is a part of a data set of a hub"}})
      keys_.answer(path(key), kNo, "", why);
    keys_.answer(path("split"), Class::no_effect, "");
    keys_.answer(at_, Class::no_effect, "", "is not read there either");
  }

  Import& import_;
  Keys keys_;
  std::string name_, at_;
  DataSource source_;
};

}  // namespace

std::vector<DataSource> llama_factory_data(Import& import, const std::string& folder,
                                           const std::vector<std::string>& names, bool pretraining) {
  std::vector<DataSource> sources;
  const std::string path = folder + "/dataset_info.json";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) {
    import.missing.push_back("data: " + path + ": not there; --dataset-dir names its folder");
    return sources;
  }
  const Document info = read_document(path);
  for (const std::string& name : names) {
    const json::Value* entry = info.root.as_object().find(name);
    if (entry == nullptr || !entry->is_object()) {
      import.missing.push_back("data: " + excerpt(name) + ": not in " + path);
      continue;
    }
    sources.push_back(Reader(import, info, name).read(folder, pretraining));
  }
  if (!sources.empty() && !read_together(sources))
    import.missing.emplace_back("data: one data set is text and another has conversations: bring them into one");
  return sources;
}

}  // namespace fp8::foreign
