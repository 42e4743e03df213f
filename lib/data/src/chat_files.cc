// Rows of conversations into token files.
#include <algorithm>
#include <span>
#include <utility>

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
    if (options.pack) info_.sequence_length = *options.pack;
    if (files.dry_run) {
      check_output(path, files.force);
    } else {
      writer_.emplace(path, info_, files.force);
    }
  }

  // Returns how many targets of the row do not count in the file.
  std::int64_t write(const chat::Row& row) {
    std::vector<std::uint8_t> mask = row.mask;
    std::int64_t uncounted = 0;
    std::size_t begin = 0;
    for (const std::size_t length : row.lengths) {
      uncounted += std::exchange(mask[begin], std::uint8_t{0});
      put(row, mask, begin, length);
      begin += length;
    }
    if (row.padding > 0) put(row, mask, begin, row.padding);
    return uncounted;
  }
  void check() const {
    if (info_.tokens == 0)
      throw Error(path_ + ": no document is left for this file", {{"eval-share", "with another share"}});
  }
  void finish() {
    if (writer_) writer_->finish();
  }

 private:
  void put(const chat::Row& row, const std::vector<std::uint8_t>& mask, std::size_t begin, std::size_t length) {
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
    writer_->append(ids, std::span(mask).subspan(begin, length));
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
  for (const std::string& input : options.inputs) {
    for (const std::string& output : {files.output, files.eval_output}) check_not_input(output, input);
  }
  RowFile train(files.output, files, options);
  std::optional<RowFile> eval;
  if (!files.eval_output.empty()) eval.emplace(files.eval_output, files, options);
  std::int64_t train_uncounted = 0, eval_uncounted = 0;
  ChatSummaries summaries = read_conversations(options, [&](const chat::Row& row, bool for_eval) {
    (for_eval ? eval_uncounted : train_uncounted) += (for_eval && eval ? *eval : train).write(row);
  });
  summaries.train.targets -= train_uncounted;
  summaries.eval.targets -= eval_uncounted;
  if (eval) eval->check();
  train.check();
  if (eval) eval->finish();
  train.finish();
  return summaries;
}

}  // namespace fp8::data
