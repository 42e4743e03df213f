// Reads the model: the vocabulary into a hash table, the merges into a table keyed by pairs of ids, the ids of single
// characters into pages by code point.
#include "bpe.h"

#include <algorithm>
#include <array>
#include <bit>

#include "byte_alphabet.h"
#include "fp8/base/error.h"
#include "fp8/token/tokenizer.h"
#include "parts.h"
#include "unicode.h"

namespace fp8::token {
namespace {

constexpr std::uint64_t kNoPair = ~std::uint64_t{0};
constexpr std::size_t kPage = 256;
constexpr std::size_t kPages = 0x110000 / kPage;
constexpr char32_t kMetaspaceCode = 0x2581;

std::uint64_t packed(std::uint64_t high, std::uint64_t low) { return high << 32U | low; }

char32_t first_of(std::string_view text) { return character_at(text, 0).code; }
char32_t last_of(std::string_view text) { return character_at(text, character_before(text, text.size())).code; }

// Fields that are not implemented and therefore must be unset.
void refuse_unsupported(const json::Object& model, const std::string& what) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.get_string_or(key, "", what).empty()) throw Error(what + ": \"" + key + "\" is not supported");
  }
  if (model.get_double_or("dropout", 0, what) != 0) throw Error(what + ": \"dropout\" is not supported");
}

}  // namespace

Bpe::Bpe(const json::Object& model, bool bytes, const std::string& what)
    : what_(what), bytes_(bytes), pages_(kPages, 0), initial_(kPage, kNone) {
  const std::string type = model.get_string_or("type", "BPE", what);
  if (type != "BPE") refuse_type(what, type);
  refuse_unsupported(model, what);
  ignore_merges_ = model.get_bool_or("ignore_merges", false, what);
  fuse_unknown_ = model.get_bool_or("fuse_unk", false, what);
  byte_fallback_ = model.get_bool_or("byte_fallback", false, what);
  read_vocabulary(model);
  read_unknown(model);
  read_merges(model);
}

void Bpe::read_vocabulary(const json::Object& model) {
  const json::Object& vocabulary = model.get_object("vocab", what_);
  ids_.reserve(vocabulary.size());
  for (const auto& [text, value] : vocabulary) {
    const std::int64_t id = value.is_int() ? value.as_int() : -1;
    if (id < 0 || id >= kMaxIds) {
      throw Error(what_ + ": the id of " + shown(text) + " is not an integer from 0 to " + std::to_string(kMaxIds - 1));
    }
    const auto n = static_cast<std::size_t>(id);
    if (n >= texts_.size()) texts_.resize(n + 1, nullptr);
    if (texts_[n] != nullptr) {
      throw Error(what_ + ": " + shown(*texts_[n]) + " and " + shown(text) + " have the same id " + std::to_string(id));
    }
    texts_[n] = &ids_.emplace(text, static_cast<std::uint32_t>(id)).first->first;
    longest_ = std::max(longest_, text.size());
    if (text.empty() || character_length(text[0]) != text.size()) continue;
    const char32_t unit = first_of(text);
    if (!bytes_) {
      set_initial(unit, static_cast<std::uint32_t>(id));
    } else if (const auto byte = byte_of_character(unit)) {
      set_initial(*byte, static_cast<std::uint32_t>(id));
    }
  }
}

void Bpe::set_initial(char32_t unit, std::uint32_t id) {
  std::uint32_t& page = pages_[unit / kPage];
  if (page == 0) {
    page = static_cast<std::uint32_t>(initial_.size());
    initial_.resize(initial_.size() + kPage, kNone);
  }
  initial_[page + unit % kPage] = id;
}

void Bpe::read_unknown(const json::Object& model) {
  if (const json::Value* token = model.find("unk_token"); token != nullptr && !token->is_null()) {
    unknown_ = model.get_string("unk_token", what_);
  }
  constexpr std::string_view kHex = "0123456789ABCDEF";
  fallback_.assign(256, kNone);
  for (std::size_t b = 0; byte_fallback_ && b < 256; ++b) {
    const auto found = ids_.find(std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">");
    if (found != ids_.end()) fallback_[b] = found->second;
  }
}

void Bpe::read_merges(const json::Object& model) {
  const json::Array& merges = model.get_array("merges", what_);
  slots_.assign(std::bit_ceil(2 * merges.size() + 2), Slot{kNoPair, kNoPair});
  shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots_.size()));
  std::vector<std::uint64_t> crossings;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const json::Value& merge = merges[rank];
    const std::string where = what_ + ": merge " + std::to_string(rank);
    std::string_view left;
    std::string_view right;
    if (merge.is_string()) {
      const std::string_view text = merge.as_string();
      const std::size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        throw Error(where + " is not two entries separated by a space");
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      const bool pair = merge.is_array() && merge.as_array().size() == 2 && merge.as_array()[0].is_string() &&
                        merge.as_array()[1].is_string();
      if (!pair) throw Error(where + " is not a pair of entries");
      left = merge.as_array()[0].as_string();
      right = merge.as_array()[1].as_string();
    }
    read_merge(left, right, rank);
    if (!left.empty() && !right.empty()) crossings.push_back(packed(last_of(left), first_of(right)));
  }
  if (!bytes_) find_boundaries(std::move(crossings));
}

void Bpe::read_merge(std::string_view left, std::string_view right, std::size_t rank) {
  const auto id_of = [&](std::string_view text) {
    const std::optional<std::uint32_t> id = find(text);
    if (id) return *id;
    throw Error(what_ + ": merge " + std::to_string(rank) + " needs " + shown(text) +
                ", which is not in the vocabulary");
  };
  const std::uint64_t pair = packed(id_of(left), id_of(right));
  const std::uint32_t made = id_of(std::string(left).append(right));
  std::size_t at = (pair * 0x9E3779B97F4A7C15U) >> shift_;
  while (slots_[at].pair != kNoPair && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {pair, packed(rank, made)};  // a repeated pair overrides
}

// A text may be encoded in two parts if no merge crosses the boundary between them. The unknown token and the tokens of
// bytes take part in merges with their own texts ("<0xNN>").
void Bpe::find_boundaries(std::vector<std::uint64_t> crossings) {
  std::sort(crossings.begin(), crossings.end());
  crossings.erase(std::unique(crossings.begin(), crossings.end()), crossings.end());
  crossings_ = std::move(crossings);
  const bool crossed = std::any_of(crossings_.begin(), crossings_.end(), [](std::uint64_t pair) {
    return pair % packed(1, 0) == kMetaspaceCode && pair / packed(1, 0) != kMetaspaceCode;
  });
  const bool all_bytes = std::find(fallback_.begin(), fallback_.end(), kNone) == fallback_.end();
  const bool unknown =
      unknown_ && !unknown_->empty() && ids_.contains(*unknown_) && last_of(*unknown_) != kMetaspaceCode;
  splits_at_metaspace_ = initial(kMetaspaceCode) != kNone && !crossed && (all_bytes || unknown);
}

bool Bpe::divides(char32_t left, char32_t right) const {
  if (bytes_) return false;
  struct Edge {
    char32_t code;
    bool known;
  };
  const auto edge = [&](char32_t unit, bool end) -> std::optional<Edge> {
    if (initial(unit) != kNone) return Edge{unit, true};
    std::string text;
    append_character(text, unit);
    const bool falls_back = std::all_of(text.begin(), text.end(),
                                        [&](char c) { return fallback_[static_cast<unsigned char>(c)] != kNone; });
    if (falls_back) return Edge{end ? U'>' : U'<', false};
    if (!unknown_ || unknown_->empty()) return std::nullopt;
    return Edge{end ? last_of(*unknown_) : first_of(*unknown_), false};
  };
  const std::optional<Edge> a = edge(left, true);
  const std::optional<Edge> b = edge(right, false);
  // Two neighbours that are both unknown may be fused.
  if (!a || !b || (!a->known && !b->known)) return false;
  return !std::binary_search(crossings_.begin(), crossings_.end(), packed(a->code, b->code));
}

std::optional<std::uint32_t> Bpe::find(std::string_view text) const {
  if (text.size() > longest_) return std::nullopt;
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Bpe::text_of(std::uint32_t id) const { return id < texts_.size() ? texts_[id] : nullptr; }

std::uint32_t Bpe::initial(char32_t unit) const { return initial_[pages_[unit / kPage] + unit % kPage]; }

std::uint32_t Bpe::unknown_id() const {
  const std::optional<std::uint32_t> id = find(*unknown_);
  if (id) return *id;
  throw Error(what_ + ": \"unk_token\" " + shown(*unknown_) + " is needed and not in the vocabulary");
}

}  // namespace fp8::token
