// Counts and writes the tokens of all inputs.
#include "sink.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fp8/base/error.h"
#include "input.h"
#include "progress.h"

namespace fp8::data {

Sink::Sink(const TokenizeOptions& options, std::int64_t vocab_size, std::optional<std::string> tokenizer)
    : options_(options) {
  info_.vocab_size = vocab_size;
  info_.tokenizer = std::move(tokenizer);
  info_.eos = options.eos;
  if (!options.dry_run) writer_.emplace(options.output, vocab_size, options.eos, false, options.force, info_.tokenizer);
}

void Sink::begin(const std::string& name, bool ids) {
  name_ = name;
  split_ = ids && info_.eos.has_value();
  append_eos_ = !ids && info_.eos.has_value();
  position_ = 0;
}

void Sink::append(std::span<const std::uint32_t> tokens) {
  check(tokens);
  position_ += static_cast<std::int64_t>(tokens.size());
  while (split_ && !tokens.empty()) {
    const auto end = std::find(tokens.begin(), tokens.end(), static_cast<std::uint32_t>(*info_.eos));
    if (end == tokens.end()) break;
    const auto length = static_cast<std::size_t>(end - tokens.begin()) + 1;
    put(tokens.first(length));
    finish_document();
    tokens = tokens.subspan(length);
  }
  put(tokens);
}

void Sink::append_bytes(std::span<const std::byte> bytes) {
  std::array<std::uint32_t, 4096> wide;
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), wide.size());
    for (std::size_t i = 0; i < n; ++i) wide[i] = std::to_integer<std::uint32_t>(bytes[i]);
    append(std::span(wide).first(n));
    bytes = bytes.subspan(n);
  }
}

void Sink::end_document() {
  if (append_eos_ && info_.tokens != document_begin_) {
    const auto eos = static_cast<std::uint32_t>(*info_.eos);
    put({&eos, 1});
  }
  finish_document();
}

TokenInfo Sink::finish() {
  if (info_.tokens == 0) {
    throw Error(options_.inputs.size() == 1 ? shown(options_.inputs.front()) + ": holds no tokens"
                                            : "the inputs hold no tokens");
  }
  return writer_ ? writer_->finish() : info_;
}

void Sink::check(std::span<const std::uint32_t> tokens) const {
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](auto id) { return id >= info_.vocab_size; });
  if (bad == tokens.end()) return;
  throw Error(name_ + ": token " + std::to_string(position_ + (bad - tokens.begin())) + " is " + std::to_string(*bad) +
                  ", not below the vocabulary size " + std::to_string(info_.vocab_size),
              {{"vocab-size", ""}});
}

void Sink::put(std::span<const std::uint32_t> tokens) {
  if (writer_) writer_->append(tokens);
  info_.tokens += static_cast<std::int64_t>(tokens.size());
  if (options_.progress && info_.tokens >= reported_ + kProgressEvery) {
    reported_ = info_.tokens;
    options_.progress(info_.tokens);
  }
}

void Sink::finish_document() {
  if (writer_) writer_->end_document();
  info_.documents += info_.tokens != document_begin_ ? 1 : 0;
  document_begin_ = info_.tokens;
}

}  // namespace fp8::data
