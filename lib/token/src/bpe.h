/// The model of a tokenizer: a vocabulary and ranked byte-pair merges.
/// Source: Sennrich, Haddow, Birch 2016; Hugging Face tokenizers, models/bpe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::token {

/// No id, and no place in a list of symbols.
inline constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// Buffers for encoding a piece, one per thread.
struct BpeScratch {
  std::vector<std::uint32_t> symbols;     ///< ids of the current symbols
  std::vector<std::uint64_t> merges;      ///< rank and id of the merge of each symbol with the next; all ones if none
  std::vector<std::uint32_t> next, last;  ///< linked list of the symbols of a long piece
  std::vector<std::uint64_t> queue;       ///< heap of rank and position
  std::string text;                       ///< a piece in the byte alphabet
};

/// Byte-pair encoding of pieces.
class Bpe {
 public:
  /// Reads the member "model". With `bytes`, pieces are bytes, which the vocabulary stores in the byte alphabet;
  /// otherwise pieces are text. Throws Error `what: reason`.
  Bpe(const json::Object& model, bool bytes, const std::string& what);

  /// The id of the entry with this text; nullopt if there is none.
  std::optional<std::uint32_t> find(std::string_view text) const;
  /// The text of an id, nullptr if there is none. Valid for the lifetime of this object.
  const std::string* text_of(std::uint32_t id) const;
  /// Number of entries.
  std::size_t size() const { return ids_.size(); }
  /// Largest id plus one.
  std::int64_t end() const { return static_cast<std::int64_t>(texts_.size()); }

  /// Whether a piece that is an entry is encoded as that entry, without merges ("ignore_merges").
  bool takes_whole() const { return ignore_merges_; }
  /// The id of the entry that is equal to the piece. Requires takes_whole().
  std::optional<std::uint32_t> whole(std::string_view piece, BpeScratch& scratch) const;
  /// Encodes a non-empty piece by merges and appends the ids. Throws Error for an unknown character if the unknown
  /// token is not in the vocabulary.
  void merge(std::string_view piece, BpeScratch& scratch, std::vector<std::uint32_t>& ids) const;

  /// Whether a text may be divided before every U+2581 that follows another character: no merge crosses that boundary.
  bool splits_at_metaspace() const { return splits_at_metaspace_; }
  /// Whether a text may be divided between these two characters: no merge crosses that boundary. Always false for
  /// bytes.
  bool divides(char32_t left, char32_t right) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Slot {
    std::uint64_t pair;
    std::uint64_t merge;
  };
  void read_vocabulary(const json::Object& model);
  void read_unknown(const json::Object& model);
  void read_merges(const json::Object& model);
  void read_merge(std::string_view left, std::string_view right, std::size_t rank);
  void set_initial(char32_t unit, std::uint32_t id);
  void find_boundaries(std::vector<std::uint64_t> crossings);
  void add_unit(char32_t unit, bool& unknown_waits, std::vector<std::uint32_t>& symbols) const;
  void append_symbols(std::string_view piece, std::vector<std::uint32_t>& symbols) const;
  bool append_fallback(std::string_view text, std::vector<std::uint32_t>& symbols) const;
  std::uint32_t unknown_id() const;
  std::uint32_t initial(char32_t unit) const;
  std::uint64_t find_merge(std::uint32_t left, std::uint32_t right) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

  std::string what_;
  bool bytes_;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool splits_at_metaspace_ = false;
  std::optional<std::string> unknown_;
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> texts_;  // texts by id; nullptr where an id has none
  std::size_t longest_ = 0;                // bytes of the longest entry
  std::vector<Slot> slots_;                // open addressing, at most half full
  unsigned shift_ = 0;
  std::vector<std::uint32_t> pages_;      // offset in initial_ of each page of 256 code points
  std::vector<std::uint32_t> initial_;    // ids of single characters or bytes
  std::vector<std::uint32_t> fallback_;   // ids of <0x00> to <0xFF>
  std::vector<std::uint64_t> crossings_;  // sorted: last character, first character of each merge
};

}  // namespace fp8::token
