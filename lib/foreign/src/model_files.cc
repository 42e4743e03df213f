// The model and the tokenizer of a run.
#include <filesystem>

#include "finish.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/chat/carried.h"
#include "fp8/chat/document.h"
#include "fp8/data/tokenize.h"
#include "fp8/hf/folder.h"
#include "fp8/hf/tokenizer.h"
#include "fp8/json/json.h"

namespace fp8::foreign {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void find_folder(Import& import) {
  const std::optional<std::string>& given = import.options.model;
  if (given && !is_folder(*given)) {
    import.missing.push_back("model: " + *given + ": no such folder");
    return;
  }
  if (given) {
    import.model = absolute_path(*given);
  } else if (import.model_name && is_folder(*import.model_name)) {
    import.model = absolute_path(*import.model_name);
  } else if (!import.config) {
    import.missing.push_back(import.model_name ? "model: " + excerpt(*import.model_name) +
                                                     ": no such folder; download it and name the folder with --model"
                                               : "model: the file names none; name its folder with --model");
  }
  if (import.model.empty()) return;
  try {
    (void)hf::Folder(import.model);
  } catch (const Error& e) {
    import.missing.push_back(std::string("model: ") + e.what());
  }
}

// The tokenizer must have the tokens of the template, or the token that ends a text.
void check_tokenizer(Import& import, const data::DeclaredTokenizer& declared) {
  const DataPlan& plan = import.data;
  if (plan.conversations) {
    const chat::Choice choice = chat::choose_template(plan.chat_template, declared.own_template, true);
    if (!choice.form) throw Error(declared.file + ": its model carries no chat template that is known");
    const token::Tokenizer tokenizer = declared.open();
    (void)chat::Renderer(*choice.form, tokenizer, declared.special);
  } else if (plan.appends_eos) {
    const std::string token = plan.eos_token.empty() ? declared.special.eos.value_or("") : plan.eos_token;
    if (!token.empty()) import.eos = hf::token_id(json::parse(declared.text, declared.file), token);
    if (!import.eos) throw Error(declared.file + ": no end-of-sequence token, which ends each text");
  }
}

void find_tokenizer(Import& import) {
  const std::optional<std::string>& own = import.data.tokenizer;
  const std::string where = own ? absolute_path(*own) : import.model;
  if (where.empty()) return;
  const bool there = is_folder(where) ? is_there(where + "/tokenizer.json") : is_there(where);
  if (!there) {
    import.unready.push_back("tokenizer: " + where + (is_folder(where) ? ": no tokenizer.json" : ": not there") +
                             ", with which the data is made");
    return;
  }
  try {
    check_tokenizer(import, data::declared_tokenizer(where));
    import.tokenizer = where;
  } catch (const Error& e) {
    import.unready.push_back(std::string("tokenizer: ") + e.what());
  }
}

}  // namespace

void find_model(Import& import) {
  find_folder(import);
  find_tokenizer(import);
}

std::optional<std::int64_t> vocabulary_of(const Import& import) {
  const std::string what = "config.json";
  if (import.config) {
    const std::int64_t size = import.config->get_int_or("vocab_size", 0, what);
    return size > 0 ? std::optional(size) : std::nullopt;
  }
  if (import.model.empty()) return std::nullopt;
  try {
    return hf::Folder(import.model).config().vocab_size;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace fp8::foreign
