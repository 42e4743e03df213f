// Conversations to rows. Threads parse and render batches of records; the rest runs in the order of the input.
#include "fp8/data/chat.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/ordered.h"
#include "fp8/base/text.h"
#include "fp8/data/sampler.h"
#include "fp8/token/encoder_pool.h"
#include "progress.h"
#include "text_check.h"

namespace fp8::data {
namespace {

constexpr std::size_t kRenderedBatch = std::size_t{1} << 19U;  // bytes of JSON that a thread renders at a time
constexpr std::int64_t kNotedBad = 10;                         // bad records that are named
constexpr std::size_t kMostReasons = 50;                       // most reasons that are counted one by one

// Records of one input. Without a schema no record so far had the columns of a known format.
struct Batch {
  std::string name;
  const chat::Columns* columns;
  std::optional<chat::Schema> schema;
  std::vector<json::Record> records;
};

// A record's document, or the reason why there is none.
struct Outcome {
  Origin origin;
  std::optional<chat::Document> document = {};
  std::vector<std::string> ignored = {};
  std::string reason = {};   // without the place
  std::string message = {};  // message of the error
  std::vector<Hint> hints = {};
};

// Renders records. Called by several threads at once.
class Renderer {
 public:
  Renderer(const ChatOptions& options, const chat::Renderer& renderer, std::optional<std::size_t> cutoff)
      : options_(options), renderer_(renderer), cutoff_(cutoff), encoders_(*options.tokenizer) {}

  std::vector<Outcome> render(const Batch& batch) {
    return encoders_.with([&](token::Encoder& encoder) {
      std::vector<Outcome> outcomes;
      for (const json::Record& record : batch.records) outcomes.push_back(render_one(batch, record, encoder));
      return outcomes;
    });
  }

 private:
  [[noreturn]] static void refuse_columns(const json::Object& record);
  Outcome render_one(const Batch& batch, const json::Record& record, token::Encoder& encoder) const {
    Outcome out{.origin = {batch.name, record.line}};
    json::Value value;
    try {
      value = json::parse(record, batch.name);
    } catch (const Error& e) {
      out.reason = "not valid JSON";
      out.message = e.what();
      return out;
    }
    try {
      if (!value.is_object()) throw Error("the record is not an object");
      if (!batch.schema) refuse_columns(value.as_object());
      chat::Conversation conversation = chat::read_conversation(value, *batch.schema);
      out.document = chat::assemble(renderer_.render(conversation, encoder), options_.mask, cutoff_);
      out.ignored = std::move(conversation.ignored);
    } catch (const Error& e) {
      out.reason = e.what();
      out.message = batch.name + ": line " + std::to_string(record.line) + ": " + e.what();
      out.hints = e.hints();
    }
    return out;
  }

  const ChatOptions& options_;
  const chat::Renderer& renderer_;
  std::optional<std::size_t> cutoff_;
  token::EncoderPool encoders_;
};

// Names the columns of a record of no known format, and the assignments that read them.
void Renderer::refuse_columns(const json::Object& record) {
  const auto text_among = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names)
      if (const json::Value* const value = record.find(name); value != nullptr && value->is_string()) return name;
    return "";
  };
  const std::string question = text_among({"prompt", "question", "problem", "query", "input"});
  const std::string answer = text_among({"completion", "response", "answer", "solution", "target"});
  std::string hint = "prompt=COLUMN,response=COLUMN or messages=COLUMN to name them";
  if (record.contains("chosen")) {
    hint = "messages=chosen to train on the chosen answers";
  } else if (!question.empty() && !answer.empty()) {
    hint = "prompt=" + question + ",response=" + answer;
  }
  std::string found;
  std::size_t shown = 0;
  for (const auto& [key, value] : record) {
    found += (shown == 0 ? ", but " : ", ") + (shown == 6 ? "..." : "\"" + terminal_safe(excerpt(key)) + "\"");
    if (shown++ == 6) break;
  }
  throw Error("none of the columns of alpaca, sharegpt and messages" + found, {{"columns", hint}});
}

// The documents of a row whose first token is in the mask. It has no token before it that predicts it.
std::int64_t first_tokens(const chat::Row& row) {
  std::int64_t count = 0;
  std::size_t begin = 0;
  for (const std::size_t length : row.lengths) {
    count += row.mask[begin];
    begin += length;
  }
  return count;
}

// Counts rows and passes them on.
class Delivery {
 public:
  Delivery(const ChatOptions& options, const RowCallback& rows, ChatSummary& summary, bool eval)
      : options_(options), rows_(rows), summary_(summary), eval_(eval) {}
  void deliver(const chat::Row& row) {
    ++summary_.sequences;
    const std::int64_t before = summary_.tokens / kProgressEvery;
    summary_.tokens += static_cast<std::int64_t>(row.ids.size());
    summary_.padding += static_cast<std::int64_t>(row.padding);
    summary_.targets += std::ranges::count(row.mask, std::uint8_t{1}) - first_tokens(row);
    rows_(row, eval_);
    if (options_.progress && summary_.tokens / kProgressEvery != before) options_.progress(summary_.tokens);
  }

 private:
  const ChatOptions& options_;
  const RowCallback& rows_;
  ChatSummary& summary_;
  bool eval_;
};

// Makes rows of documents: packs them, or passes them on as they are.
class RowMaker {
 public:
  // `padding` is used with ChatOptions::pack only.
  RowMaker(const ChatOptions& options, std::uint32_t padding, Delivery delivery) : delivery_(delivery) {
    if (!options.pack) return;
    packer_.emplace(static_cast<std::size_t>(*options.pack), padding,
                    [this](const chat::Row& row) { delivery_.deliver(row); });
  }
  RowMaker(const RowMaker&) = delete;
  RowMaker& operator=(const RowMaker&) = delete;
  void add(chat::Document document) {
    if (packer_) return packer_->add(std::move(document));
    const std::size_t length = document.ids.size();
    delivery_.deliver({std::move(document.ids), std::move(document.mask), {length}, 0});
  }
  void skip() {
    if (packer_) packer_->skip();
  }
  void finish() {
    if (packer_) packer_->finish();
  }

 private:
  Delivery delivery_;
  std::optional<chat::Packer> packer_;
};

// Takes outcomes in order: counts, refuses, and passes documents on.
class Consumer {
 public:
  Consumer(const ChatOptions& options, std::optional<std::size_t> cutoff, std::uint32_t padding,
           const RowCallback& rows)
      : options_(options),
        cutoff_(cutoff),
        train_(options, padding, Delivery(options, rows, summaries_.train, false)),
        eval_(options, padding, Delivery(options, rows, summaries_.eval, true)) {}

  void take(Outcome outcome) {
    if (stopped_) return;
    const bool eval = for_eval(records_++);
    RowMaker& rows = eval ? eval_ : train_;
    ChatSummary& summary = eval ? summaries_.eval : summaries_.train;
    ++summary.records;
    if (!outcome.document) {
      refuse(outcome, summary);
      return rows.skip();
    }
    chat::Document& document = *outcome.document;
    measure(document, outcome.origin, summary);
    if (const char* const reason = reason_to_drop(document, outcome.origin); reason != nullptr) {
      count_dropped(reason, summary);
      return rows.skip();
    }
    ++summary.documents;
    for (const std::string& text : outcome.ignored) ++summary.ignored[text];
    if (document.ids.size() < document.whole) ++summary.cut;
    stopped_ = options_.document && !options_.document(document, outcome.origin);
    rows.add(std::move(document));
  }
  // Whether no more documents are wanted.
  bool stopped() const { return stopped_; }
  ChatSummaries finish() {
    check_bad();
    if (summaries_.train.documents + summaries_.eval.documents == 0) throw_nothing_left();
    train_.finish();
    eval_.finish();
    note_ignored();
    return std::move(summaries_);
  }

 private:
  void note_ignored() const {
    if (!options_.note) return;
    std::map<std::string, std::int64_t> all = summaries_.train.ignored;
    for (const auto& [text, count] : summaries_.eval.ignored) all[text] += count;
    for (const auto& [text, count] : all)
      options_.note(std::to_string(count) + " of " + counted(records_, "record") + ": " + text);
  }
  // One of 1 / eval_share records is for evaluation, chosen by a hash.
  bool for_eval(std::int64_t record) const {
    if (options_.eval_share <= 0) return false;
    const double period = 1 / options_.eval_share;
    const auto begins = [&](double block) { return static_cast<std::int64_t>(std::ceil(block * period)); };
    double block = std::floor(static_cast<double>(record) / period);
    if (begins(block + 1) <= record) block += 1;
    const std::int64_t first = begins(block), size = std::max<std::int64_t>(1, begins(block + 1) - first);
    return record - first ==
           static_cast<std::int64_t>(permute(0, static_cast<std::uint64_t>(size), static_cast<std::uint64_t>(block)));
  }
  // Counts tokens before and after the cutoff.
  void measure(const chat::Document& document, const Origin& origin, ChatSummary& summary) const {
    const auto whole = static_cast<std::int64_t>(document.whole);
    if (whole > summary.longest) {
      summary.longest = whole;
      summary.longest_at = origin;
    }
    ++summary.rendered;
    summary.whole += whole;
    if (document.ids.size() == document.whole) return;
    ++summary.too_long;
    summary.lost += options_.too_long == TooLong::cut ? whole - static_cast<std::int64_t>(document.ids.size()) : whole;
  }
  const char* reason_to_drop(const chat::Document& document, const Origin& origin) const {
    if (cutoff_ && document.whole > *cutoff_ && options_.too_long != TooLong::cut) {
      if (options_.too_long == TooLong::drop) return "too long";
      throw Error(origin.name + ": line " + std::to_string(origin.line) + ": " + std::to_string(document.whole) +
                      " tokens, more than " + std::to_string(*cutoff_),
                  {{"too-long", "cut or drop"}});
    }
    return document.ids.empty() ? "no tokens" : nullptr;
  }
  void refuse(const Outcome& outcome, ChatSummary& summary) {
    if (options_.skip_bad <= 0) throw Error(outcome.message, outcome.hints);
    if (bad_++ == 0) first_bad_ = outcome.message;
    if (options_.note && bad_ <= kNotedBad) options_.note(outcome.message + "; left out");
    count_dropped(outcome.reason, summary);
  }
  void count_dropped(const std::string& reason, ChatSummary& summary) {
    const bool own = summary.dropped.contains(reason) || summary.dropped.size() < kMostReasons;
    if (reason_.empty()) reason_ = reason;
    ++summary.dropped[own ? reason : "other reasons"];
  }
  void check_bad() const {
    if (options_.note && bad_ > kNotedBad) {
      options_.note(std::to_string(bad_ - kNotedBad) + " more bad records were left out");
    }
    if (static_cast<double>(bad_) <= options_.skip_bad * static_cast<double>(records_)) return;
    throw Error(std::to_string(bad_) + " of " + std::to_string(records_) +
                    " records are bad, more than the share that may be left out; the first: " + first_bad_,
                {{"skip-bad", "with a larger share"}});
  }
  [[noreturn]] void throw_nothing_left() const {
    const std::string input = options_.inputs.size() != 1 ? "the inputs"
                              : options_.inputs[0] == "-" ? "standard input"
                                                          : options_.inputs[0];
    if (records_ == 0) throw Error(input + ": no records");
    throw Error(input + ": no conversation is left, all " + std::to_string(records_) +
                " records were left out; the first: " + reason_);
  }

  const ChatOptions& options_;
  std::optional<std::size_t> cutoff_;
  ChatSummaries summaries_;
  RowMaker train_, eval_;
  std::int64_t records_ = 0, bad_ = 0;
  std::string first_bad_;  // message
  std::string reason_;     // why the first record was left out
  bool stopped_ = false;
};

// Sets the schema of an input by the first record that has the columns of a known format.
void guess(Batch& batch, const ChatOptions& options) {
  for (const json::Record& record : batch.records) {
    try {
      batch.schema = chat::guess_schema(json::parse(record, batch.name), *batch.columns);
    } catch (const Error&) {  // a bad record, which is reported later
      continue;
    }
    if (!batch.schema) continue;
    const chat::Schema& schema = *batch.schema;
    const bool alpaca = schema.format == chat::Format::alpaca;
    if (options.guessed) {
      options.guessed(batch.name + ": read as " + std::string(name_of(schema.format)) + ", column \"" +
                      (alpaca ? schema.response : schema.messages) + "\"");
    }
    return;
  }
}

void read_chat_input(const std::string& path, const chat::Columns& columns, const ChatOptions& options,
                     OrderedTasks<Batch, std::vector<Outcome>>& tasks, const Consumer& consumer) {
  json::RecordReader reader(path, options.layout, options.waiting);
  refuse_known_formats(reader.name(), std::as_bytes(std::span(reader.head())), {});
  if (options.max_records) reader.end_after(*options.max_records);
  std::optional<chat::Schema> schema;
  const std::optional<chat::Format> format = columns.format() ? columns.format() : options.format;
  if (format) schema = chat::schema_of(*format, columns);
  json::read_batches(
      reader, kRenderedBatch,
      [&](std::vector<json::Record> records) {
        Batch batch{reader.name(), &columns, schema, std::move(records)};
        if (!schema) guess(batch, options);
        schema = batch.schema;
        tasks.add(std::move(batch));
        return !consumer.stopped();
      },
      [&] { tasks.finish(); });
}

void check(const ChatOptions& options) {
  if (options.inputs.empty()) throw Error("no input");
  if (std::count(options.inputs.begin(), options.inputs.end(), "-") > 1) {
    throw Error("standard input: can be read only once");
  }
  for (const std::string& path : options.inputs) refuse_description(path);
  if (options.columns.size() > 1 && options.columns.size() != options.inputs.size())
    throw Error(counted(static_cast<std::int64_t>(options.inputs.size()), "input") + ", but columns for " +
                    std::to_string(options.columns.size()),
                {{"columns", "once, or once for each input"}});
  if (options.cutoff && *options.cutoff < 1) throw Error("a cutoff needs at least 1 token");
  if (options.pack && *options.pack < 2) throw Error("packed sequences need at least 2 tokens");
}

}  // namespace

ChatSummaries read_conversations(const ChatOptions& options, const RowCallback& rows) {
  check(options);
  std::optional<std::size_t> cutoff;
  if (options.cutoff) cutoff = static_cast<std::size_t>(*options.cutoff);
  // A packed sequence ends in padding.
  if (options.pack) cutoff = std::min(cutoff.value_or(kMaxVocabSize), static_cast<std::size_t>(*options.pack) - 1);
  const chat::Renderer form(options.form, *options.tokenizer,
                            options.special ? *options.special : chat::read_special_tokens(*options.tokenizer));
  if (options.note && !form.marks_end())
    options.note(options.form.path +
                 ": no special token is in an answer, so a model will not end one (put {eos} after it)");
  Consumer consumer(options, cutoff, options.pack ? form.padding() : 0, rows);
  Renderer renderer(options, form, cutoff);
  OrderedTasks<Batch, std::vector<Outcome>> tasks([&](const Batch& batch) { return renderer.render(batch); },
                                                  [&](std::vector<Outcome> outcomes) {
                                                    for (Outcome& outcome : outcomes) consumer.take(std::move(outcome));
                                                  });
  const chat::Columns usual;
  for (std::size_t i = 0; i < options.inputs.size() && !consumer.stopped(); ++i) {
    const std::size_t at = options.columns.size() == 1 ? 0 : i;
    read_chat_input(options.inputs[i], options.columns.empty() ? usual : options.columns[at], options, tasks, consumer);
  }
  tasks.finish();
  return consumer.finish();
}

}  // namespace fp8::data
