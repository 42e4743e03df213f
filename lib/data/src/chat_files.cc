// Rows of conversations into token files.
#include <algorithm>
#include <span>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/data/chat.h"

namespace fp8::data {
namespace {

// One token file, or its counts alone in a dry run.
class RowFile {
 public:
  RowFile(const std::string& path, const ChatFiles& files, const ChatOptions& options) : path_(path) {
    info_.vocab_size = files.vocab_size;
    info_.tokenizer = files.tokenizer;
    info_.mask = true;
    info_.chat_template = chat::to_stored(options.form);
    if (options.pack) info_.sequence_length = *options.pack;
    if (!files.dry_run) writer_.emplace(path, info_, files.force);
  }

  void write(const chat::Row& row) {
    std::size_t begin = 0;
    for (const std::size_t length : row.lengths) {
      put(row, begin, length);
      begin += length;
    }
    if (row.padding > 0) put(row, begin, row.padding);
  }
  void check() const {
    if (info_.tokens == 0)
      throw Error(path_ + ": no document is left for this file", {{"eval-share", "with another share"}});
  }
  void finish() {
    if (writer_) writer_->finish();
  }

 private:
  void put(const chat::Row& row, std::size_t begin, std::size_t length) {
    const auto ids = std::span(row.ids).subspan(begin, length);
    const auto beyond = std::ranges::find_if(ids, [&](std::uint32_t id) { return id >= info_.vocab_size; });
    if (beyond != ids.end()) {
      throw Error("the tokenizer gives the id " + std::to_string(*beyond) +
                      ", which is not below the vocabulary size " + std::to_string(info_.vocab_size),
                  {{"vocab-size", ""}});
    }
    info_.tokens += static_cast<std::int64_t>(length);
    ++info_.documents;
    if (!writer_) return;
    writer_->append(ids, std::span(row.mask).subspan(begin, length));
    writer_->end_document();
  }

  std::string path_;
  TokenInfo info_;
  std::optional<TokenWriter> writer_;
};

}  // namespace

ChatSummaries tokenize_conversations(const ChatOptions& options, const ChatFiles& files) {
  if (!files.eval_output.empty() && files.eval_output == files.output) {
    throw Error(files.output + ": is the output for evaluation as well");
  }
  std::vector<std::string> inputs = files.also_read;
  inputs.insert(inputs.end(), options.inputs.begin(), options.inputs.end());
  check_output(files.output, files.force, inputs);
  if (!files.eval_output.empty()) check_output(files.eval_output, files.force, inputs);
  RowFile train(files.output, files, options);
  std::optional<RowFile> eval;
  if (!files.eval_output.empty()) eval.emplace(files.eval_output, files, options);
  ChatSummaries summaries = read_conversations(
      options, [&](const chat::Row& row, bool for_eval) { (for_eval && eval ? *eval : train).write(row); });
  if (eval) eval->check();
  train.check();
  if (eval) eval->finish();
  train.finish();
  return summaries;
}

}  // namespace fp8::data
