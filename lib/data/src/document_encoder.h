/// Encodes documents to ids with a tokenizer, on all processors, in input order. Memory is bounded: a long document is
/// split where the tokenizer allows it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/ordered.h"
#include "fp8/token/encoder_pool.h"
#include "fp8/token/tokenizer.h"

namespace fp8::data {

/// Callbacks for the ids.
struct Documents {
  std::function<void(std::span<const std::uint32_t>)> append;  ///< ids of the current document
  std::function<void()> end;                                   ///< ends the current document
};

/// Takes text and passes its ids on later, in the thread of the caller.
class DocumentEncoder {
 public:
  /// `special`: add the tokenizer's special ids around each document. `tokenizer` must outlive this.
  DocumentEncoder(const token::Tokenizer& tokenizer, bool special, Documents documents);
  /// Waits for running batches.
  ~DocumentEncoder();
  DocumentEncoder(const DocumentEncoder&) = delete;
  DocumentEncoder& operator=(const DocumentEncoder&) = delete;

  /// Appends to the current document; `where` is its name in messages. Throws Error `where: reason` if this text or an
  /// earlier one is not UTF-8.
  void append(std::string_view text, const std::string& where);
  /// Ends the current document.
  void end_document();
  /// Waits for all batches and passes their ids on.
  void finish();

 private:
  struct Piece {
    std::string text;         // text with the next character, unless it is the last of its document
    std::size_t length = 0;   // without the next character
    token::Part part;         // position in the document
    std::string where;        // name of the document
    std::uint64_t begin = 0;  // offset in the document, bytes
  };
  struct Encoded {
    std::vector<std::uint32_t> ids;
    bool whole = false;  // false: must be encoded together with the next piece
  };
  struct Batch {
    std::vector<Piece> pieces;
    std::vector<Encoded> encoded;
  };
  void add_piece(std::size_t length, bool last);
  void start_batch();
  void take_batch(Batch batch);
  void take_piece(Piece piece, Encoded encoded);
  Batch encode_batch(std::vector<Piece> pieces);
  static Encoded encode(token::Encoder& encoder, const Piece& piece, bool special);

  const token::Tokenizer& tokenizer_;
  bool special_;
  Documents documents_;
  std::string text_;                // text of the current document that is not yet in a piece
  std::string where_;               // name of the current document
  std::uint64_t begin_ = 0;         // offset of text_ in the current document, bytes
  std::size_t searched_ = 0;        // leading bytes of text_ without a split point
  std::vector<Piece> pieces_;       // pieces of the next batch
  std::size_t bytes_ = 0;           // total size of pieces_
  std::optional<Piece> undivided_;  // must be encoded with the next piece
  token::EncoderPool encoders_;
  OrderedTasks<std::vector<Piece>, Batch> batches_;  // declared last: its threads use the members above
};

}  // namespace fp8::data
