/// Packing of documents into sequences of one length, so that training computes little padding. No token of a sequence
/// attends to another document: the caller keeps the lengths.
/// Source: LLaMA-Factory 0.9.5, neat_packing (greedy_knapsack of data/processor/processor_utils.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "fp8/chat/document.h"

namespace fp8::chat {

/// Documents one after the other, then padding.
struct Row {
  std::vector<std::uint32_t> ids;    ///< ids of all documents and the padding
  std::vector<std::uint8_t> mask;    ///< 0 at padding; as many elements as ids
  std::vector<std::size_t> lengths;  ///< lengths of the documents
  std::size_t padding = 0;           ///< tokens of padding at the end
};

/// Packs documents in groups of 1000 records: memory is bounded by one group.
class Packer {
 public:
  /// `length` of the sequences, at least 2; `padding` fills them. Full sequences are passed to `deliver`.
  Packer(std::size_t length, std::uint32_t padding, std::function<void(Row)> deliver);

  /// Adds the document of the next record: 1 to length - 1 tokens.
  void add(Document document);
  /// Counts a record without a document, which belongs to a group too.
  void skip();
  /// Packs the last group.
  void finish();

 private:
  void count_record();
  void pack_group();

  std::size_t length_;
  std::uint32_t padding_;
  std::function<void(Row)> deliver_;
  std::size_t records_ = 0;  // number of records in the group
  std::vector<Document> group_;
};

}  // namespace fp8::chat
