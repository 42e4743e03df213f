// The canonical form of a tokenizer.json, and its digest.
#include "fp8/hf/tokenizer.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::hf {
namespace {

constexpr std::int64_t kMaxId = (std::int64_t{1} << 31) - 2;

// The digested bytes, and the largest id.
class Canonical {
 public:
  explicit Canonical(const std::string& what) : what_(what) {}

  [[noreturn]] void fail(const std::string& reason) const { throw Error(what_ + ": " + reason); }
  void number(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift & 0xFFU);
  }
  void text(std::string_view value) {
    number(value.size());
    bytes_ += value;
  }
  std::int64_t id(const json::Value& value, const char* where) {
    if (!value.is_int() || value.as_double() < 0 || value.as_double() > static_cast<double>(kMaxId))
      fail(std::string(where) + ": an id is not an integer from 0 to " + std::to_string(kMaxId));
    vocab_size_ = std::max(vocab_size_, value.as_int() + 1);
    return value.as_int();
  }
  TokenizerIdentity finish() const { return {digest_of(std::as_bytes(std::span(bytes_))).hex(), vocab_size_}; }

 private:
  const std::string& what_;
  std::string bytes_ = "fp8-tokenizer 1\n";
  std::int64_t vocab_size_ = 0;
};

void add_vocab(const json::Object& vocab, Canonical& out) {
  if (vocab.empty()) out.fail("model.vocab: is empty");
  std::vector<std::pair<std::int64_t, std::string_view>> tokens;
  tokens.reserve(vocab.size());
  for (const auto& [token, id] : vocab) tokens.emplace_back(out.id(id, "model.vocab"), token);
  std::sort(tokens.begin(), tokens.end());
  out.number(tokens.size());
  for (const auto& [id, token] : tokens) {
    out.number(static_cast<std::uint64_t>(id));
    out.text(token);
  }
}

// Both halves of a merge, in either form; empty views if malformed.
std::pair<std::string_view, std::string_view> halves_of(const json::Value& merge) {
  if (merge.is_array() && merge.as_array().size() == 2 && merge.as_array()[0].is_string() &&
      merge.as_array()[1].is_string())
    return {merge.as_array()[0].as_string(), merge.as_array()[1].as_string()};
  if (!merge.is_string()) return {};
  const std::string_view both = merge.as_string();
  const std::size_t space = both.find(' ');
  if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) return {};
  return {both.substr(0, space), both.substr(space + 1)};
}

void add_merges(const json::Array& merges, Canonical& out) {
  out.number(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = halves_of(merges[i]);
    if (left.empty() || right.empty()) out.fail("model.merges: merge " + std::to_string(i) + " is not two tokens");
    out.text(left);
    out.text(right);
  }
}

void add_added(const json::Array& added, Canonical& out, const std::string& what) {
  std::vector<std::tuple<std::int64_t, std::string_view, bool>> tokens;
  for (const json::Value& value : added) {
    if (!value.is_object()) out.fail("added_tokens: one is not an object");
    const json::Object& token = value.as_object();
    const json::Value* id = token.find("id");
    tokens.emplace_back(out.id(id == nullptr ? json::Value() : *id, "added_tokens"),
                        token.get_string("content", what + ": added_tokens"),
                        token.get_bool_or("special", false, what + ": added_tokens"));
  }
  std::sort(tokens.begin(), tokens.end());
  out.number(tokens.size());
  for (const auto& [id, content, special] : tokens) {
    out.number(static_cast<std::uint64_t>(id));
    out.text(content);
    out.number(special ? 1 : 0);
  }
}

// The array under `key`, empty if missing.
const json::Array& array_or_empty(const json::Object& object, const char* key, const std::string& what) {
  static const json::Array none;
  const json::Value* value = object.find(key);
  return value == nullptr || value->is_null() ? none : object.get_array(key, what);
}

// What the file asks for that does not change the ids of a text.
std::string note_on(const json::Object& root) {
  std::string keys;
  for (const char* key : {"truncation", "padding"})
    if (const json::Value* value = root.find(key); value != nullptr && !value->is_null())
      keys += (keys.empty() ? "" : " and ") + std::string(key);
  return keys.empty() ? keys : keys + " of tokenizer.json: ignored; no tool cuts or pads texts by it";
}

}  // namespace

TokenizerIdentity tokenizer_identity(const json::Value& tokenizer, const std::string& what) {
  if (!tokenizer.is_object()) throw Error(what + ": not a tokenizer.json: not an object");
  const json::Object& root = tokenizer.as_object();
  const json::Object& model = root.get_object("model", what);
  if (const std::string type = model.get_string_or("type", "BPE", what + ": model"); type != "BPE")
    throw Error(what + ": model: \"" + terminal_safe(excerpt(type)) + "\" is not supported (BPE is)");
  Canonical canonical(what);
  add_vocab(model.get_object("vocab", what + ": model"), canonical);
  add_merges(array_or_empty(model, "merges", what + ": model"), canonical);
  add_added(array_or_empty(root, "added_tokens", what), canonical, what);
  TokenizerIdentity identity = canonical.finish();
  identity.note = note_on(root);
  return identity;
}

TokenizerIdentity parse_tokenizer_identity(std::string_view text, const std::string& what) {
  return tokenizer_identity(json::parse(text, what, {.max_depth = 64, .max_bytes = kMaxTokenizerBytes}), what);
}

std::optional<std::int64_t> token_id(const json::Value& tokenizer, std::string_view content) {
  const std::string what = "tokenizer.json";
  const json::Object& root = tokenizer.as_object();
  for (const json::Value& added : array_or_empty(root, "added_tokens", what)) {
    if (added.as_object().get_string("content", what) == content) return added.as_object().get_int("id", what);
  }
  const json::Value* const id = root.get_object("model", what).get_object("vocab", what).find(content);
  return id != nullptr && id->is_int() ? std::optional(id->as_int()) : std::nullopt;
}

}  // namespace fp8::hf
