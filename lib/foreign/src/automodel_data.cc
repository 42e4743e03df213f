// Data sets of an AutoModel recipe, their loaders and their packing.
// Source: nemo_automodel/components/datasets/llm/*.py, components/datasets/loader.py and recipes/_typed_config.py at
// commit 36044ad3.
#include <array>
#include <filesystem>

#include "automodel.h"
#include "data_files.h"

namespace fp8::foreign {
namespace {

// What is done with a class of data sets.
enum class Kind : std::uint8_t { chat, columns, megatron, hub, refused };

struct DataClass {
  std::string_view name;  // last part of `_target_`
  Kind kind;
  std::string_view why;  // of hub: how its records become text; of refused: the reason
};

// Tokens of a sequence if the file states no length.
constexpr std::int64_t kLength = 4096;

constexpr std::string_view kRandom = "random ids, for measuring speed alone; fp8-bench measures steps";

constexpr std::array<DataClass, 14> kClasses = {{
    {"ChatDataset", Kind::chat, ""},
    {"make_agent_chat_dataset", Kind::refused, "traces of agents with calls of tools are not read here"},
    {"ColumnMappedTextInstructionDataset", Kind::columns, ""},
    {"ColumnMappedTextInstructionIterableDataset", Kind::columns, ""},
    {"MegatronPretraining", Kind::megatron, ""},
    {"make_squad_dataset", Kind::hub,
     "its prompts are \"Context: ... Question: ... Answer: \": write them as messages"},
    {"HellaSwag", Kind::hub, "its prompts are ctx and its answers endings[label]: write them as messages"},
    {"make_xlam_dataset", Kind::refused, "calls of tools are not read here"},
    {"NanogptDataset", Kind::refused, "name the files to fp8-tokenize --from llmc"},
    {"MockIterableDataset", Kind::refused, kRandom},
    {"MockPrefixTreeDataset", Kind::refused, kRandom},
    {"MockDataset", Kind::refused, kRandom},
    {"build_unpacked_dataset", Kind::refused, kRandom},
    {"build_packed_dataset", Kind::refused, kRandom},
}};

constexpr std::array<KeyRow, 33> kDataRows = {{
    {"*dataset*.tokenizer*", Class::mapped, "", "the tokenizer is that of the model"},
    {"*dataset*.padding", Class::no_effect, "", "padding is not computed here"},
    {"*dataset*.pad_to_max_length", Class::no_effect, "", "padding is not computed here"},
    {"*dataset*.align_to_bos", Class::differs, "", "sequences begin at other tokens"},
    {"*dataset*.splits_to_build", Class::no_effect, "", "which parts of the data are prepared"},
    {"*dataset*.num_val_samples", Class::no_effect, "", "how many sequences an evaluation reads: see --eval-batches"},
    {"*dataset*.index_mapping_dir", Class::no_effect, "", "a cache"},
    {"*dataset*.num_proc", Class::no_effect, "", "processes that read data"},
    {"*dataset*.fp8", Class::does_nothing, "", "read by nothing"},
    {"*dataset*.unshifted", Class::no_counterpart, "", "masked diffusion is not trained here"},
    {"*dataset*.mask_reasoning_content", Class::mapped, "", "off"},
    {"*dataset*.start_of_turn_token", Class::does_nothing, "", "read by nothing"},
    {"*dataset*.revision", Class::no_effect, "", "part of the name of the data"},
    {"*dataset*.split*", Class::mapped, "", "part of the name of the data"},
    {"*dataset*.name", Class::mapped, "", "part of the name of the data"},
    {"*dataset*.answer_only_loss_mask", Class::mapped, "fp8-tokenize --mask assistant", ""},
    {"dataset*.*", Class::no_counterpart, "", "an argument of a data set that is not read here"},
    {"validation_dataset*.*", Class::no_counterpart, "", "an argument of a data set that is not read here"},
    {"*dataloader._target_", Class::no_effect, "", "which class reads the data"},
    {"*dataloader.num_workers", Class::no_effect, "", "processes that read data"},
    {"*dataloader.pin_memory", Class::no_effect, "", "memory of batches"},
    {"*dataloader.persistent_workers", Class::no_effect, "", "processes that read data"},
    {"*dataloader.prefetch_factor", Class::no_effect, "", "batches read in advance"},
    {"*dataloader.collate_fn*", Class::no_effect, "", "padding is not computed here"},
    {"*dataloader.batch_size", Class::mapped, "", "step_scheduler.local_batch_size decides"},
    {"*dataloader.shuffle_buffer_size", Class::differs, "", "all sequences are shuffled here"},
    {"*dataloader.dataloader_type", Class::mapped, "", "the order of the data"},
    {"validation_dataloader", Class::no_effect, "", "order of the data of evaluations"},
    {"validation_dataloader.*", Class::no_effect, "", "order of the data of evaluations"},
    {"packed_sequence.num_proc", Class::no_effect, "", "processes that pack"},
    {"packed_sequence.packing_strategy", Class::no_effect, "", "kernels for documents in a sequence"},
    {"packed_sequence.split_across_pack", Class::mapped, "", "records are not divided"},
    {"packed_sequence.max_packs", Class::no_counterpart, "", "the number of sequences is not bounded here"},
}};

const DataClass* class_of(const std::string& target) {
  for (const DataClass& c : kClasses)
    if (is_python_name(target, c.name)) return &c;
  return nullptr;
}

// Columns of --columns for the roles of a column mapping.
std::vector<std::string> columns_of(Mapping& m, const std::string& at, bool chat) {
  std::vector<std::string> columns;
  const auto add = [&](const char* role, const char* name) {
    const std::string path = at + ".column_mapping." + role;
    if (!m.has(path)) return;
    columns.push_back(std::string(name) + "=" + m.text(path, ""));
    m.note(path, Class::mapped, "fp8-tokenize --columns " + columns.back());
  };
  const bool both = m.has(at + ".column_mapping.question") && m.has(at + ".column_mapping.context");
  add("question", both && !chat ? "query" : "prompt");
  add("context", chat ? "system" : "prompt");
  add("answer", "response");
  return columns;
}

void read_records(Mapping& m, const std::string& at, const DataClass& kind, DataSource& source) {
  if (kind.kind == Kind::megatron) {
    source.format = "megatron";
    m.note(at + "._target_", Class::mapped, "fp8-tokenize --from megatron");
    return;
  }
  if (kind.kind == Kind::chat) {
    source.format = "messages";
    m.note(at + "._target_", Class::mapped, "fp8-tokenize --from messages");
    return;
  }
  const bool chat = m.flag(at + ".use_hf_chat_template", false);
  source.format = "alpaca";
  source.columns = columns_of(m, at, chat);
  m.note(at + ".use_hf_chat_template", Class::mapped, {}, chat ? "records are rendered with the template" : "off");
  m.note(at + "._target_", chat ? Class::mapped : Class::differs, "fp8-tokenize --from alpaca",
         chat ? "" : "prompt and answer are joined by a blank there, and rendered with the chat template here");
}

// Files of a value that is a path or a list of paths.
std::vector<std::string> names_of(const Mapping& m, Keys& keys, const std::string& path) {
  const json::Value* value = keys.value(path);
  if (value == nullptr || !value->is_array()) return {m.text(path, "")};
  std::vector<std::string> names;
  for (const json::Value& one : value->as_array())
    if (one.is_string()) names.push_back(one.as_string());
  return names;
}

void find_files(Mapping& m, const std::string& at, const char* key, DataSource source,
                std::vector<DataSource>& sources) {
  Import& import = m.import();
  const std::string path = at + "." + key;
  m.note(path, Class::mapped, "fp8-tokenize " + (source.format.empty() ? "" : "--from " + source.format));
  for (const std::string& name : names_of(m, m.keys(), path)) {
    const std::string file = local_file(import, name);
    if (file.empty())
      import.missing.push_back(to_fetch(name, m.text(at + ".split", "")));
    else
      source.files.push_back(file);
  }
  if (!source.files.empty()) sources.push_back(std::move(source));
}

// Megatron's data: prefixes of .bin and .idx files, with `*` in names.
void find_megatron(Mapping& m, const std::string& at, DataSource source, std::vector<DataSource>& sources) {
  Import& import = m.import();
  m.note(at + ".paths", Class::mapped, "fp8-tokenize --from megatron");
  for (const std::string& name : names_of(m, m.keys(), at + ".paths")) {
    const std::filesystem::path prefix(name);
    const std::vector<std::string> files =
        files_of_folder(import.options, prefix.parent_path().string(), prefix.filename().string() + ".bin");
    if (files.empty()) import.missing.push_back("data: " + name + ".bin: no such files");
    source.files.insert(source.files.end(), files.begin(), files.end());
  }
  m.refuse(at + ".split", "ids are not divided into training and evaluation: name other files for each");
  import.data.conversations = false;
  import.data.mask = "all";
  if (!source.files.empty()) sources.push_back(std::move(source));
}

void read_length(Mapping& m, const std::string& at, bool train) {
  DataPlan& plan = m.import().data;
  const std::string length = m.has(at + ".seq_length") ? ".seq_length" : ".seq_len";
  const std::string cut = m.has(at + ".truncation") ? m.text(at + ".truncation", "") : "do_not_truncate";
  const bool cuts = cut != "do_not_truncate" && cut != "false";
  if (train && m.has(at + length)) plan.length = m.whole(at + length, 0);
  m.note(at + length, Class::mapped, "--seq-length " + std::to_string(m.whole(at + length, 0)),
         cuts ? "" : "longer records keep their length there and are cut here");
  m.note(at + ".truncation", Class::mapped, cuts ? "fp8-tokenize --too-long cut" : "",
         cuts ? "records are cut from the end, as the tokenizer of the model does" : "off");
}

void read_options(Mapping& m, const std::string& at, bool train) {
  DataPlan& plan = m.import().data;
  read_length(m, at, train);
  if (m.flag(at + ".mask_history", false) && train) plan.mask = "last";
  m.note(at + ".mask_history", Class::mapped, "fp8-tokenize --mask " + plan.mask);
  if (m.has(at + ".answer_only_loss_mask") && !m.flag(at + ".answer_only_loss_mask", true)) {
    if (train) plan.mask = "all";
    m.note(at + ".answer_only_loss_mask", Class::mapped, "fp8-tokenize --mask all");
  }
  if (m.flag(at + ".mask_reasoning_content", false))
    m.refuse(at + ".mask_reasoning_content", "reasoning in an answer counts as target here");
  if (m.flag(at + ".skip_invalid_samples", false)) plan.skips_bad = true;
  m.note(at + ".skip_invalid_samples", Class::mapped, plan.skips_bad ? "fp8-tokenize --skip-bad 1" : "");
  if (m.has(at + ".chat_template")) {
    const std::string text = m.text(at + ".chat_template", "");
    const std::string file = local_file(m.import(), text);
    if (file.empty()) {
      m.refuse(at + ".chat_template",
               "a template in the configuration: write it to a file for fp8-tokenize --template");
    } else {
      if (train) plan.chat_template = file;
      m.note(at + ".chat_template", Class::mapped, "fp8-tokenize --template " + file);
    }
  }
  m.note(at + ".shuffle_seed", Class::differs, {}, "another order, of which a split takes its part");
}

void refuse_arguments(Mapping& m, const std::string& at, const std::string& why) {
  const json::Value* block = m.keys().value(at);
  if (block == nullptr || !block->is_object()) return;
  for (const auto& [key, value] : block->as_object())
    if (key != "_target_" && !key.starts_with("tokenizer")) m.note(at + "." + key, Class::does_nothing, {}, why);
}

// A data set of a hub whose records become prompts in AutoModel: a local file has the prompts as messages.
void find_hub(Mapping& m, const std::string& at, const DataClass& kind, DataSource source,
              std::vector<DataSource>& sources) {
  Import& import = m.import();
  const std::string key = at + (m.has(at + ".dataset_name") ? ".dataset_name" : ".path_or_dataset");
  const std::string name = m.text(key, ""), file = local_file(import, name);
  if (!file.empty()) {
    m.note(at + "._target_", Class::differs, "fp8-tokenize --from messages", "the records are those of a local file");
    m.note(key, Class::mapped, "fp8-tokenize " + file);
    source.files = {file};
    source.format = "messages";
    sources.push_back(std::move(source));
    return;
  }
  m.refuse(at + "._target_", std::string(kind.why));
  m.refuse(key, "a data set of a hub: fetch it and write its records as messages");
  import.missing.push_back(to_fetch(name, m.text(at + ".split", "")) + ", with its records as messages");
}

void read_set(Mapping& m, const std::string& at, bool train) {
  Import& import = m.import();
  if (!is_given(m, at)) {
    m.note(at, Class::mapped, {}, "no data");
    if (train) import.missing.emplace_back("data: the file names none");
    return;
  }
  const std::string target = m.text(at + "._target_", "");
  const DataClass* kind = class_of(target);
  std::vector<DataSource>& sources = train ? import.data.train : import.data.eval;
  DataSource source;
  for (const char* key : {".limit_dataset_samples", ".num_samples_limit"})
    if (m.has(at + key)) {
      source.most_records = m.whole(at + key, 0);
      m.note(at + key, Class::mapped, "fp8-tokenize --max-samples " + std::to_string(*source.most_records));
    }
  const bool unread = kind == nullptr || kind->kind == Kind::refused || kind->kind == Kind::hub;
  if (!train && unread)
    return m.note(at, Class::no_effect, {}, "the loss is not evaluated on it: its records are not read here");
  if (kind == nullptr || kind->kind == Kind::refused) {
    read_length(m, at, train);
    const std::string why(kind == nullptr ? "a class of data sets that is not read here" : kind->why);
    m.refuse(at + "._target_", why);
    import.missing.push_back("data: " + target + ": " + why);
    return refuse_arguments(m, at, "its class of data sets is not read here");
  }
  read_options(m, at, train);
  if (kind->kind == Kind::hub) return find_hub(m, at, *kind, std::move(source), sources);
  read_records(m, at, *kind, source);
  if (kind->kind == Kind::megatron) return find_megatron(m, at, std::move(source), sources);
  find_files(m, at, "path_or_dataset_id", std::move(source), sources);
}

void read_loader(Mapping& m) {
  Import& import = m.import();
  const bool shuffle = m.flag("dataloader.shuffle", true);
  m.set("dataloader.shuffle", true, "sampler", shuffle ? "shuffle" : "sequential",
        shuffle ? Class::differs : Class::mapped, shuffle ? "another generator: another order of sequences" : "");
  import.duration.keeps_last_batch = !m.flag("dataloader.drop_last", false);
  m.answer("dataloader.drop_last", false, Class::mapped, {},
           import.duration.keeps_last_batch ? "the last batch of an epoch is a step" : "");
  if (m.flag("dataloader.group_by_length", false))
    m.refuse("dataloader.group_by_length", "sequences are not sorted by length here");
  m.note("dataloader.group_by_length", Class::mapped, {}, "off");
}

void read_packing(Mapping& m) {
  DataPlan& plan = m.import().data;
  const char* path = "packed_sequence.packed_sequence_size";
  const std::int64_t size = is_given(m, path) ? m.whole(path, 0) : 0;
  if (size <= 0) return m.answer(path, 0, Class::mapped, {}, "records are not packed");
  plan.packed = true;
  plan.length = size;
  plan.too_long = "drop";
  m.note(path, Class::differs, "fp8-tokenize --pack " + std::to_string(size) + " --too-long drop",
         "records are packed in their order there, and so that sequences are full here");
}

}  // namespace

void read_automodel_data(Mapping& m) {
  read_set(m, "dataset", true);
  read_set(m, "validation_dataset", false);
  read_loader(m);
  read_packing(m);
  DataPlan& plan = m.import().data;
  if (plan.length > 0) return;
  plan.length = kLength;
  m.answer("dataset.seq_length", {}, Class::differs, "--seq-length " + std::to_string(kLength),
           "records of any length train there, longer ones are cut here");
}

std::span<const KeyRow> automodel_data_rows() { return kDataRows; }

}  // namespace fp8::foreign
