// Encodes pieces of about 256 KiB in batches of about 1 MiB; each batch runs in its own thread.
#include "document_encoder.h"

#include <algorithm>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::data {
namespace {

constexpr std::size_t kDividedPiece = std::size_t{1} << 18U, kEncodedBatch = std::size_t{1} << 20U;

}  // namespace

DocumentEncoder::DocumentEncoder(const token::Tokenizer& tokenizer, bool special, Documents documents)
    : tokenizer_(tokenizer),
      special_(special),
      documents_(std::move(documents)),
      encoders_(tokenizer),
      batches_([this](std::vector<Piece> pieces) { return encode_batch(std::move(pieces)); },
               [this](Batch batch) { take_batch(std::move(batch)); }) {}

DocumentEncoder::~DocumentEncoder() = default;

void DocumentEncoder::append(std::string_view text, const std::string& where) {
  where_ = where;
  text_ += text;
  // The search for a split point goes backwards, so text without one is not searched again until it has doubled.
  while (text_.size() >= std::max(kDividedPiece, 2 * searched_)) {
    const std::optional<std::size_t> place = tokenizer_.division(text_);
    searched_ = place ? 0 : text_.size();
    if (place) add_piece(*place, false);
  }
}

void DocumentEncoder::end_document() {
  if (!text_.empty() || begin_ > 0) add_piece(text_.size(), true);
  begin_ = 0;
  searched_ = 0;
}

// Moves the first `length` bytes of the text into a piece.
void DocumentEncoder::add_piece(std::size_t length, bool last) {
  Piece piece{.text = {}, .length = length, .part = {begin_ == 0, last}, .where = where_, .begin = begin_};
  if (last) {
    piece.text = std::move(text_);
    text_.clear();
  } else {
    constexpr std::size_t kLongestCharacter = 4;
    std::string rest = text_.substr(length);
    std::size_t behind = 1;
    while (behind < std::min(kLongestCharacter, rest.size()) &&
           (static_cast<unsigned char>(rest[behind]) & 0xC0U) == 0x80)
      ++behind;
    text_.resize(length + behind);
    piece.text = std::exchange(text_, std::move(rest));
    begin_ += length;
  }
  bytes_ += piece.length;
  pieces_.push_back(std::move(piece));
  if (bytes_ >= kEncodedBatch) start_batch();
}

void DocumentEncoder::start_batch() {
  bytes_ = 0;
  batches_.add(std::exchange(pieces_, {}));
}

void DocumentEncoder::finish() {
  if (!pieces_.empty()) start_batch();
  batches_.finish();
}

void DocumentEncoder::take_batch(Batch batch) {
  for (std::size_t i = 0; i < batch.pieces.size(); ++i)
    take_piece(std::move(batch.pieces[i]), std::move(batch.encoded[i]));
}

void DocumentEncoder::take_piece(Piece piece, Encoded encoded) {
  if (undivided_) {
    Piece joined = std::exchange(undivided_, std::nullopt).value();
    joined.text.resize(joined.length);
    joined.text += piece.text;
    joined.length += piece.length;
    joined.part.last = piece.part.last;
    piece = std::move(joined);
    encoded = encoders_.with([&](token::Encoder& encoder) { return encode(encoder, piece, special_); });
  }
  if (!encoded.whole) {
    undivided_ = std::move(piece);
    return;
  }
  documents_.append(encoded.ids);
  if (piece.part.last) documents_.end();
}

DocumentEncoder::Batch DocumentEncoder::encode_batch(std::vector<Piece> pieces) {
  return encoders_.with([&](token::Encoder& encoder) {
    Batch batch{std::move(pieces), {}};
    for (const Piece& piece : batch.pieces) batch.encoded.push_back(encode(encoder, piece, special_));
    return batch;
  });
}

DocumentEncoder::Encoded DocumentEncoder::encode(token::Encoder& encoder, const Piece& piece, bool special) {
  Encoded encoded;
  const std::size_t valid = valid_utf8_length(piece.text);
  if (valid != piece.text.size()) {
    throw Error(piece.where + ": byte " + std::to_string(piece.begin + valid) +
                " is not UTF-8 (iconv -c -f UTF-8 -t UTF-8 leaves such bytes out)");
  }
  try {
    encoded.whole = encoder.encode_part(piece.text, piece.length, piece.part, special, encoded.ids);
  } catch (const Error& e) {
    throw Error(piece.where + ": " + e.what());
  }
  return encoded;
}

}  // namespace fp8::data
