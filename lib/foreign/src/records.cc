// Counts the rows of the training data, as fp8-tokenize makes them.
#include "fp8/json/records.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "finish.h"
#include "fp8/base/error.h"
#include "fp8/chat/carried.h"
#include "fp8/chat/conversation.h"
#include "fp8/data/chat.h"
#include "fp8/data/tokenize.h"

namespace fp8::foreign {
namespace {

chat::Columns parsed(const std::string& columns) { return columns.empty() ? chat::Columns() : chat::Columns(columns); }

chat::Format format_of(const DataSource& source) {
  for (const chat::Format f : {chat::Format::sharegpt, chat::Format::messages})
    if (source.format == chat::name_of(f)) return f;
  return chat::Format::alpaca;
}

// Records of a file that are conversations.
std::int64_t count_conversations(const DataSource& source, const std::string& file, bool skips_bad) {
  const chat::Schema schema = chat::schema_of(format_of(source), parsed(columns_of(source)));
  json::RecordReader reader(file, json::Layout::by_content);
  std::int64_t records = 0, good = 0;
  while (!source.most_records || records < *source.most_records) {
    const std::optional<json::Record> record = reader.next();
    if (!record) break;
    ++records;
    try {
      (void)chat::read_conversation(json::parse(*record, reader.name()), schema);
      ++good;
    } catch (const Error& e) {
      if (!skips_bad) throw Error(file + ": line " + std::to_string(record->line) + ": " + e.what());
    }
  }
  return good;
}

// Conversations for which the lengths of records matter: packed ones, or those of which long ones are left out.
std::int64_t count_rendered(const Import& import) {
  const DataPlan& plan = import.data;
  const data::DeclaredTokenizer declared = data::declared_tokenizer(import.tokenizer);
  const token::Tokenizer tokenizer = declared.open();
  data::ChatOptions o;
  for (const DataSource& source : plan.train) o.inputs.insert(o.inputs.end(), source.files.begin(), source.files.end());
  o.format = format_of(plan.train.front());
  for (const std::string& columns : columns_of(plan.train)) o.columns.push_back(parsed(columns));
  o.tokenizer = &tokenizer;
  o.special = declared.special;
  const chat::Choice choice = chat::choose_template(plan.chat_template, declared.own_template, true);
  if (!choice.form) throw Error(import.tokenizer + ": carries no chat template that is known");
  o.form = *choice.form;
  o.mask = chat::parse_mask(plan.mask).value_or(chat::Mask::assistant);
  if (plan.packed)
    o.pack = plan.length;
  else
    o.cutoff = plan.length;
  if (plan.too_long == "drop") o.too_long = data::TooLong::drop;
  if (plan.skips_bad) o.skip_bad = 1;
  o.eval_share = plan.eval_share;
  o.max_records = plan.train.front().most_records;
  return data::read_conversations(o, [](const chat::Row&, bool) {}).train.sequences;
}

// Sequences of plain text, which are joined.
std::int64_t count_text(const Import& import) {
  const data::DeclaredTokenizer declared = data::declared_tokenizer(import.tokenizer);
  data::TokenizeOptions o;
  for (const DataSource& source : import.data.train)
    o.inputs.insert(o.inputs.end(), source.files.begin(), source.files.end());
  const DataSource& first = import.data.train.front();
  o.from = data::parse_source(first.format).value_or(data::Source::automatic);
  o.text_column = parsed(columns_of(first)).get("text", "text");
  o.tokenizer = declared.id;
  o.encode_with = &declared;
  o.vocab_size = declared.vocab_size;
  o.special = !import.data.appends_eos;
  o.eos = import.eos;
  o.max_records = first.most_records;
  o.output = "data.h5";
  o.dry_run = true;
  return std::max<std::int64_t>((data::tokenize(o).tokens - 1) / import.data.length, 0);
}

bool all_there(Import& import) {
  bool there = !import.data.train.empty();
  for (const std::vector<DataSource>* sources : {&import.data.train, &import.data.eval})
    for (const DataSource& source : *sources)
      for (const std::string& file : source.files) {
        std::error_code ignored;
        if (std::filesystem::is_regular_file(file, ignored)) continue;
        import.missing.push_back("data: " + file + ": no such file");
        there = false;
      }
  return there;
}

std::int64_t count_records(Import& import) {
  std::int64_t records = 0;
  for (const DataSource& source : import.data.train)
    for (const std::string& file : source.files) records += count_conversations(source, file, import.data.skips_bad);
  DataPlan& plan = import.data;
  if (plan.eval_records && records > 0)
    plan.eval_share = std::min(static_cast<double>(*plan.eval_records) / static_cast<double>(records), 0.9);
  const double share = plan.eval_share * static_cast<double>(records);
  const std::int64_t held_out = plan.eval_records ? *plan.eval_records : static_cast<std::int64_t>(std::ceil(share));
  return std::max<std::int64_t>(records - held_out, 0);
}

}  // namespace

std::optional<std::int64_t> count_rows(Import& import) {
  const DataPlan& plan = import.data;
  if (!all_there(import)) return std::nullopt;
  const bool by_tokens = !plan.conversations || plan.packed || plan.too_long == "drop";
  try {
    const std::int64_t records = plan.conversations ? count_records(import) : 0;
    if (!by_tokens) return records;
    if (import.tokenizer.empty()) {
      import.missing.push_back(
          "data: its sequences cannot be counted without the tokenizer of the model, and so no steps");
      return std::nullopt;
    }
    return plan.conversations ? count_rendered(import) : count_text(import);
  } catch (const Error& e) {
    import.missing.push_back(std::string("data: ") + e.what());
    return std::nullopt;
  }
}

}  // namespace fp8::foreign
