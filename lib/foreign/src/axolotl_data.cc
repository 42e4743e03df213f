// Data sets and adapters of Axolotl.
// Source: src/axolotl/prompt_strategies/{chat_template,completion,pretrain}.py, utils/data/{sft,utils}.py,
// utils/schemas/{datasets,peft}.py and loaders/adapter.py at commit 067b021c.
#include <algorithm>
#include <array>

#include "axolotl.h"
#include "data_files.h"
#include "finish.h"

namespace fp8::foreign {
namespace {

// Templates of Axolotl that are templates here.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTemplates = {
    {{"chatml", "chatml"}, {"llama3", "llama3"}, {"qwen_25", "qwen"}}};

std::string name_of_template(Mapping& m, const std::string& path) {
  const std::string name = m.text(path, "tokenizer_default");
  if (name == "tokenizer_default" || name.empty()) {
    m.note(path, Class::mapped, {}, "the template of the tokenizer");
    return {};
  }
  for (const auto& [theirs, ours] : kTemplates)
    if (name == theirs || name == "tokenizer_default_fallback_" + std::string(theirs)) {
      m.note(path, Class::mapped, "fp8-tokenize --template " + std::string(ours));
      return std::string(ours);
    }
  m.refuse(path, "not a template here; the nearest is tokenizer_default, that of the model");
  return {};
}

std::string at(const std::string& set, const char* key) { return set + "." + key; }

// The columns of conversations.
void read_messages(Mapping& m, const std::string& set, DataSource& source) {
  const std::string role =
      m.text(at(set, "message_property_mappings.role"), m.text(at(set, "message_field_role"), "role"));
  const std::string content =
      m.text(at(set, "message_property_mappings.content"), m.text(at(set, "message_field_content"), "content"));
  const std::string field = m.text(at(set, "field_messages"), "messages");
  const bool sharegpt = role == "from" && content == "value";
  source.format = sharegpt ? "sharegpt" : "messages";
  const auto add = [&](const char* name, const std::string& value, const char* usual) {
    if (value != usual) source.columns.push_back(std::string(name) + "=" + value);
  };
  add("messages", field, sharegpt ? "conversations" : "messages");
  add("role_tag", role, sharegpt ? "from" : "role");
  add("content_tag", content, sharegpt ? "value" : "content");
  for (const auto& [theirs, ours] :
       {std::pair{"roles.user", "user_tag"}, {"roles.assistant", "assistant_tag"}, {"roles.system", "system_tag"}}) {
    const json::Value* names = m.keys().value(at(set, theirs));
    if (names == nullptr || !names->is_array() || names->as_array().empty()) continue;
    const json::Value& first = names->as_array().front();
    const std::string usual = sharegpt ? (std::string(ours) == "user_tag"        ? "human"
                                          : std::string(ours) == "assistant_tag" ? "gpt"
                                                                                 : "system")
                                       : std::string(ours).substr(0, std::string(ours).find('_'));
    if (first.is_string() && first.as_string() != usual)
      source.columns.push_back(std::string(ours) + "=" + first.as_string());
    if (names->as_array().size() > 1)
      m.note(at(set, theirs), Class::differs, "fp8-tokenize --columns", "the first name alone is read here");
    else
      m.note(at(set, theirs), Class::mapped, "fp8-tokenize --columns");
  }
  for (const char* key : {"message_property_mappings", "message_field_role", "message_field_content", "field_messages"})
    m.note(at(set, key), Class::mapped, "fp8-tokenize --from " + source.format);
}

void read_mask(Mapping& m, const std::string& set) {
  const json::Value* roles = m.keys().value(at(set, "roles_to_train"));
  const bool assistant =
      roles == nullptr ||
      (roles->is_array() && roles->as_array().size() == 1 &&
       (roles->as_array().front() == json::Value("assistant") || roles->as_array().front() == json::Value("gpt")));
  if (assistant)
    m.note(at(set, "roles_to_train"), Class::mapped, "fp8-tokenize --mask assistant");
  else
    m.refuse(at(set, "roles_to_train"), "targets are answers, the last answer, or all tokens: fp8-tokenize --mask");
  for (const char* key : {"train_on_eos", "train_on_eot"})
    if (const std::string when = m.text(at(set, key), "turn"); when != "turn")
      m.refuse(at(set, key), "the end of each answer is a target here");
    else
      m.note(at(set, key), Class::mapped, {}, "the end of each answer is a target");
}

void find_files(Mapping& m, const std::string& set, DataSource source, std::vector<DataSource>& sources) {
  Import& import = m.import();
  const std::string name = m.text(at(set, "path"), ""), split = m.text(at(set, "split"), "train");
  std::vector<std::string> names;
  if (const json::Value* files = m.keys().value(at(set, "data_files")); files != nullptr) {
    if (files->is_string()) names.push_back(files->as_string());
    if (files->is_array())
      for (const json::Value& file : files->as_array())
        if (file.is_string()) names.push_back(file.as_string());
  }
  if (names.empty()) names.push_back(name);
  for (const std::string& file : names) {
    const std::string found = local_file(import, file);
    if (found.empty())
      import.missing.push_back(to_fetch(file, split));
    else
      source.files.push_back(found);
  }
  m.note(at(set, "path"), Class::mapped, "fp8-tokenize");
  m.note(at(set, "data_files"), Class::mapped, "fp8-tokenize");
  m.note(at(set, "split"), Class::mapped, {}, "part of the name of the data");
  if (!source.files.empty()) sources.push_back(std::move(source));
}

// Text for pretraining.
void read_text(Mapping& m, const std::string& set, DataSource& source, std::string_view field_key) {
  Import& import = m.import();
  import.data.conversations = false;
  import.data.mask = "all";
  import.data.appends_eos = true;
  import.set("documents", "joined");
  source.format = "jsonl";
  const std::string field = m.text(at(set, field_key.data()), "text");
  if (field != "text") source.columns.push_back("text=" + field);
  m.note(at(set, field_key.data()), Class::mapped, "fp8-tokenize --columns text=" + field);
  m.note(at(set, "type"), Class::differs, "fp8-tokenize --from jsonl",
         "each text is divided into sequences by itself there; here texts are joined, then divided");
}

void read_set(Mapping& m, const std::string& set, bool pretraining, std::vector<DataSource>& sources) {
  Import& import = m.import();
  DataSource source;
  const json::Value* type = m.keys().value(at(set, "type"));
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : pretraining ? "pretrain" : "";
  if (type != nullptr && type->is_object()) {
    m.refuse(at(set, "type"), "prompts of an own form are not built here; the nearest is type chat_template");
    import.missing.emplace_back("data: " + m.text(at(set, "path"), "a data set") + ": no records that are read here");
  } else if (name == "chat_template" || name == "chat_template.default") {
    read_messages(m, set, source);
    read_mask(m, set);
    m.note(at(set, "type"), Class::mapped, "fp8-tokenize --from " + source.format);
    const std::string own = m.has(at(set, "chat_template")) ? at(set, "chat_template") : "chat_template";
    if (const std::string form = name_of_template(m, own); !form.empty()) import.data.chat_template = form;
    find_files(m, set, std::move(source), sources);
  } else if (name == "completion" || name == "pretrain" || name == "pretraining") {
    read_text(m, set, source, pretraining && m.has(at(set, "text_column")) ? "text_column" : "field");
    find_files(m, set, std::move(source), sources);
  } else if (name.starts_with("alpaca")) {
    source.format = "alpaca";
    m.refuse(at(set, "type"),
             "the prompt of Alpaca is not built here: if allowed, records are rendered with the template of the model");
    find_files(m, set, std::move(source), sources);
  } else {
    m.refuse(at(set, "type"), "records of this type are not read here; the nearest is type chat_template");
    m.note(at(set, "path"), Class::no_counterpart, {}, "records of its type are not read here");
    import.missing.emplace_back("data: " + m.text(at(set, "path"), "a data set") + ": no records that are read here");
  }
}

void read_sets(Mapping& m, const char* key, bool pretraining, std::vector<DataSource>& sources) {
  const json::Value* sets = m.keys().value(key);
  if (sets == nullptr) return;
  if (sets->is_string()) {
    m.refuse(key, "state the name as path of an entry with type pretrain");
    m.import().missing.emplace_back("data: " + sets->as_string() + ": no records that are read here");
    return;
  }
  if (!sets->is_array()) m.keys().refuse(key, "must be a list");
  for (std::size_t i = 0; i < sets->as_array().size(); ++i)
    if (sets->as_array()[i].is_object())
      read_set(m, std::string(key) + "[" + std::to_string(i) + "]", pretraining, sources);
}

void read_lengths(Mapping& m) {
  DataPlan& plan = m.import().data;
  plan.length = m.positive("sequence_len", 512);
  m.set("sequence_len", 512, "seq-length", plan.length);
  const std::string action = m.text("excess_length_strategy", "drop");
  plan.too_long = action == "truncate" ? "cut" : action == "raise" ? "error" : "drop";
  m.answer("excess_length_strategy", "drop", Class::mapped, "fp8-tokenize --too-long " + plan.too_long);
  plan.packed = m.flag("sample_packing", false) && plan.conversations;
  m.note("sample_packing", plan.packed ? Class::differs : Class::mapped,
         plan.packed ? "fp8-tokenize --pack " + std::to_string(plan.length) : "",
         plan.packed ? "other records share a sequence, and an incomplete last batch is left out there" : "off");
  if (m.flag("train_on_inputs", false)) plan.mask = "all";
  m.answer("train_on_inputs", false, Class::mapped, "fp8-tokenize --mask " + plan.mask);
  const double size = m.number("val_set_size", 0);
  if (size >= 1)
    plan.eval_records = whole_part(size);
  else if (size > 0)
    plan.eval_share = size;
  m.note("val_set_size", size > 0 ? Class::differs : Class::mapped, size > 0 ? "fp8-tokenize --eval-share" : "",
         size > 0 ? "other records are left for evaluation" : "no evaluation");
}

}  // namespace

void read_axolotl_data(Mapping& m) {
  Import& import = m.import();
  read_sets(m, "datasets", false, import.data.train);
  read_sets(m, "pretraining_dataset", true, import.data.train);
  read_sets(m, "test_datasets", false, import.data.eval);
  if (!m.has("datasets") && !m.has("pretraining_dataset")) import.missing.emplace_back("data: the file names none");
  m.note("chat_template", Class::does_nothing, {}, "read only by data sets of type chat_template");
  if (!import.data.train.empty() && !read_together(import.data.train))
    import.unready.emplace_back(
        "data: one data set is text and another has conversations: tokenize each, see fp8-tokenize(1)");
  read_lengths(m);
}

namespace {

// The targets of --lora-targets; `refused` becomes the reason for a target that is not one here.
json::Array targets_of(Mapping& m, std::string& refused) {
  json::Array targets;
  const json::Value* names = m.keys().value("lora_target_modules");
  if (names != nullptr && names->is_string()) {
    if (names->as_string() == "all-linear") return json::Array{"all"};
    refused = "regular expressions are not read here: list the names of linears";
  }
  if (names != nullptr && !names->is_string() && !names->is_array())
    m.keys().refuse("lora_target_modules", "must be a list of names");
  if (names != nullptr && names->is_array())
    for (const json::Value& name : names->as_array()) {
      if (!name.is_string()) m.keys().refuse("lora_target_modules", "must be a list of names");
      const std::string& text = name.as_string();
      if (text == "lm_head" || text == "embed_tokens")
        refused = "linears of the layers alone get adapters here: leave out " + text;
      // PEFT compares the ends of full names.
      targets.push_back(text.find('.') == std::string::npos ? text : "*." + text);
    }
  if (m.flag("lora_target_linear", false)) return json::Array{"all"};
  return targets;
}

}  // namespace

void read_axolotl_adapter(Mapping& m) {
  const std::string adapter = m.text("adapter", "");
  for (const char* path : {"load_in_4bit", "load_in_8bit", "gptq"})
    if (m.flag(path, false))
      m.refuse(path, "weights in 4 or 8 bits are not trained on here; the nearest is LoRA on FP8 weights");
    else
      m.note(path, Class::mapped, {}, "off");
  if (adapter == "qlora") m.refuse("adapter", "QLoRA is not built here; the nearest is lora, on FP8 weights");
  if (!adapter.empty() && adapter != "lora") m.refuse("adapter", "not an adapter here; the nearest is lora");
  m.note("adapter", Class::mapped, "--lora-rank");
  if (!has_adapter(m)) {
    for (const char* path : {"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_linear",
                             "lora_target_parameters", "lora_modules_to_save", "lora_fan_in_fan_out", "lora_model_dir"})
      m.note(path, Class::does_nothing, {}, "adapter is not lora");
    return;
  }
  m.set("lora_r", 8, "lora-rank", m.whole("lora_r", 8));
  m.set("lora_alpha", 8, "lora-alpha", m.number("lora_alpha", 8));
  m.set("lora_dropout", 0.0, "lora-dropout", m.number("lora_dropout", 0));
  std::string refused;
  const json::Array targets = targets_of(m, refused);
  if (!targets.empty()) m.import().set("lora-targets", targets);
  if (!refused.empty()) m.refuse("lora_target_modules", refused);
  m.note("lora_target_modules", Class::mapped, flag_text("lora-targets", targets));
  m.note("lora_target_linear", Class::mapped, m.flag("lora_target_linear", false) ? "--lora-targets all" : "");
  m.refuse("lora_target_parameters", "tensors that are no linears get no adapter here");
  m.refuse("lora_modules_to_save", "beside adapters nothing is trained here");
  m.note("lora_fan_in_fan_out", Class::no_effect, {}, "how weights of old models are stored");
  if (m.has("lora_model_dir")) m.set("lora_model_dir", {}, "lora", m.text("lora_model_dir", ""));
  if (m.flag("peft_use_rslora", false)) m.set("peft_use_rslora", false, "rslora", true);
  m.note("peft_use_rslora", Class::mapped, {}, "off");
}

}  // namespace fp8::foreign
