// Encodes a text: added tokens, normalization, the nested steps of the pre-tokenizer, words, merges. A part of a longer
// text includes the next character as context. It may end where a step has a boundary for any following text or, after
// the last step, where no merge crosses; otherwise encode_part() returns false.
#include <algorithm>
#include <utility>

#include "byte_alphabet.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "state.h"
#include "unicode.h"
#include "word_cache.h"

namespace fp8::token {
namespace {

// A piece of text between two steps.
struct Piece {
  std::string_view text;    // the piece and `context` bytes of the text after it
  std::size_t context = 0;  // 0 if the following text has no influence
  bool first = false;       // whether it begins the whole text

  bool open() const { return context != 0; }
  std::string_view body() const { return text.substr(0, text.size() - context); }
};

void replace_spaces(std::string& out, std::string_view text, std::string_view by) {
  for (const char c : text) c == ' ' ? out += by : out += c;
}

// Whether a Split always makes a boundary after a match that ends a part, and before a match that begins the next part.
bool ends_behind_match(const Stage& stage) {
  return stage.behavior == Behavior::isolated || stage.behavior == Behavior::removed ||
         (stage.behavior == Behavior::merged_with_previous && !stage.invert);
}
bool ends_before_match(const Stage& stage) {
  return stage.behavior == Behavior::isolated || stage.behavior == Behavior::removed ||
         stage.behavior == Behavior::contiguous || (stage.behavior == Behavior::merged_with_next && !stage.invert);
}

// Joins matches with their neighbours according to the behavior of a Split, and emits complete pieces.
template <class Emit>
class Joiner {
 public:
  Joiner(const Stage& stage, Emit emit) : stage_(stage), emit_(emit) {}

  // Adds a match or the text between two matches.
  void add(Span span, bool match) {
    const bool flag = match != stage_.invert;
    switch (stage_.behavior) {
      case Behavior::isolated:
        emit_(span);
        break;
      case Behavior::removed:
        if (!flag) emit_(span);
        break;
      case Behavior::merged_with_previous:
        flag&& waits_ ? join(span) : exchange(span, flag);
        if (flag) flush();
        break;
      case Behavior::merged_with_next:
        waits_ && !flag ? join(span) : exchange(span, flag);
        if (!flag) flush();
        break;
      case Behavior::contiguous:
        waits_&& flag_ == flag ? join(span) : exchange(span, flag);
        break;
    }
  }
  // Emits the pending piece.
  void flush() {
    if (waits_) emit_(span_);
    waits_ = false;
  }
  // The last piece, from `begin`, continues after the part. Returns where the pending piece begins, or nullopt if the
  // text between matches is removed.
  std::optional<std::size_t> open(std::size_t begin) {
    const bool flag = stage_.invert;
    if (stage_.behavior == Behavior::removed && flag) return std::nullopt;
    if (waits_ && stage_.behavior == Behavior::merged_with_next && !flag) {
      waits_ = false;
      return span_.begin;
    }
    flush();
    return begin;
  }

 private:
  void join(Span span) { span_.end = span.end; }
  void exchange(Span span, bool flag) {
    flush();
    span_ = span;
    flag_ = flag;
    waits_ = true;
  }
  const Stage& stage_;
  Emit emit_;
  Span span_;
  bool flag_ = false;
  bool waits_ = false;
};

}  // namespace

struct Encoder::State {
  explicit State(const Tokenizer::State& tokenizer) : t(tokenizer), buffers(tokenizer.stages.size()) {}

  bool encode(std::string_view text, std::size_t length, Part part, std::vector<std::uint32_t>& out);
  bool segment(std::string_view text, Segment where, Part part, bool open);
  bool walk(std::size_t stage, Piece piece);
  bool split(std::size_t stage, Piece piece);
  bool model(Piece piece);
  void words(std::string_view piece);
  void word(std::string_view word, bool whole);

  const Tokenizer::State& t;
  std::vector<std::uint32_t>* ids = nullptr;  // output
  Matcher matcher;
  NormalizerScratch normalizing;
  BpeScratch merging;
  WordCache cache;
  std::vector<Segment> segments, inner;
  std::vector<std::string> buffers;  // one per step
  std::string open_text;             // a normalized segment and the character after it
};

void Encoder::State::word(std::string_view word, bool whole) {
  const std::span<const std::uint32_t> known = cache.find(word);
  if (!known.empty()) {
    ids->insert(ids->end(), known.begin(), known.end());
    return;
  }
  const std::size_t begin = ids->size();
  const std::optional<std::uint32_t> id = whole ? t.bpe.whole(word, merging) : std::nullopt;
  if (id) {
    ids->push_back(*id);
  } else {
    t.bpe.merge(word, merging, *ids);
  }
  cache.store(word, std::span(*ids).subspan(begin));
}

void Encoder::State::words(std::string_view piece) {
  const bool whole = t.bpe.takes_whole();
  if (!t.bpe.splits_at_metaspace()) {
    word(piece, whole);
    return;
  }
  if (const std::optional<std::uint32_t> id = whole ? t.bpe.whole(piece, merging) : std::nullopt) {
    ids->push_back(*id);
    return;
  }
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = piece.find(kMetaspace, at)) != std::string_view::npos; at += kMetaspace.size()) {
    if (at == begin || piece.substr(0, at).ends_with(kMetaspace)) continue;
    word(piece.substr(begin, at - begin), false);
    begin = at;
  }
  word(piece.substr(begin), false);
}

bool Encoder::State::model(Piece piece) {
  const std::string_view body = piece.body();
  if (piece.open()) {
    const char32_t left = character_at(body, character_before(body, body.size())).code;
    const char32_t right = character_at(piece.text, body.size()).code;
    if (t.bpe.takes_whole() || !t.bpe.divides(left, right)) return false;
  }
  words(body);
  return true;
}

bool Encoder::State::split(std::size_t number, Piece piece) {
  const Stage& stage = t.stages[number];
  const std::size_t limit = piece.text.size() - piece.context;
  const auto emit = [&](Span s) {
    if (s.begin != s.end)
      walk(number + 1, {piece.text.substr(s.begin, s.end - s.begin), 0, piece.first && s.begin == 0});
  };
  Joiner joiner(stage, emit);
  Matches matches(matcher, *stage.expression, piece.text, piece.open());
  std::size_t done = 0;
  Span span;
  Found found = Found::none;
  while ((found = matches.next(span)) == Found::match && (span.begin < limit || !piece.open())) {
    if (span.end > limit) return false;
    if (done != span.begin) joiner.add({done, span.begin}, false);
    joiner.add(span, true);
    done = span.end;
    if (!piece.open() || done != limit) continue;
    joiner.flush();
    return ends_behind_match(stage);
  }
  if (piece.open() && found == Found::partial && span.begin < limit) return false;
  const bool boundary = found == Found::match && span.begin == limit && ends_before_match(stage);
  if (!piece.open() || boundary) {
    if (done != limit) joiner.add({done, limit}, false);
    joiner.flush();
    return true;
  }
  const std::optional<std::size_t> begin = joiner.open(done);
  return !begin || walk(number + 1, {piece.text.substr(*begin), piece.context, piece.first && *begin == 0});
}

bool Encoder::State::walk(std::size_t number, Piece piece) {
  if (number == t.stages.size()) return model(piece);
  const Stage& stage = t.stages[number];
  if (stage.kind == Stage::Kind::split) return split(number, piece);
  std::string& buffer = buffers[number];
  buffer.clear();
  const auto change = [&](std::string_view text) {
    if (stage.kind == Stage::Kind::prefix_space) buffer += text;
    if (stage.kind == Stage::Kind::bytes) append_byte_characters(buffer, text);
    if (stage.kind == Stage::Kind::metaspace) replace_spaces(buffer, text, stage.replacement);
  };
  if (stage.kind == Stage::Kind::prefix_space) {
    if (piece.text.front() == ' ') return walk(number + 1, piece);
    buffer = " ";
  }
  if (stage.kind == Stage::Kind::metaspace) {
    const bool wanted = stage.scheme == Scheme::always || (stage.scheme == Scheme::first && piece.first);
    const bool there = piece.text.front() == ' ' || piece.text.starts_with(stage.replacement);
    if (wanted && !there) buffer = stage.replacement;
  }
  change(piece.body());
  const std::size_t length = buffer.size();
  change(piece.text.substr(piece.body().size()));
  return walk(number + 1, {buffer, buffer.size() - length, piece.first});
}

bool Encoder::State::segment(std::string_view text, Segment where, Part part, bool open) {
  const bool begins = where.begin > 0 || part.first;
  const bool first = where.begin == 0 && part.first;
  const std::string_view normalized =
      t.normalizer.apply(text.substr(where.begin, where.end - where.begin), begins, normalizing, matcher);
  const std::size_t size = normalized.size();
  std::string_view whole = normalized;
  if (open) {
    open_text = normalized;
    const std::size_t length = character_length(text[where.end]);
    open_text += t.normalizer.apply(text.substr(where.end, length), false, normalizing, matcher);
    whole = open_text;
  }
  t.in_normalized.split(whole.substr(0, size), matcher, inner);
  for (const Segment& s : inner) {
    if (s.token != nullptr) {
      ids->push_back(s.token->id);
      continue;
    }
    const std::size_t context = s.end == size ? whole.size() - size : 0;
    if (!walk(0, {whole.substr(s.begin, s.end - s.begin + context), context, first && s.begin == 0})) return false;
  }
  return true;
}

bool Encoder::State::encode(std::string_view text, std::size_t length, Part part, std::vector<std::uint32_t>& out) {
  ids = &out;
  t.in_text.split(text.substr(0, length), matcher, segments);
  for (const Segment& s : segments) {
    if (s.token != nullptr) {
      // The text after a token begins a piece, but a part that is not the first does not, so the token must be encoded
      // together with the next part.
      if (s.end == length && !part.last) return false;
      out.push_back(s.token->id);
    } else if (!segment(text, s, part, s.end == length && !part.last)) {
      return false;
    }
  }
  return true;
}

Encoder::Encoder(const Tokenizer& tokenizer) : state_(std::make_unique<State>(*tokenizer.state_)) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;

void Encoder::encode(std::string_view text, bool special, std::vector<std::uint32_t>& ids) {
  encode_part(text, text.size(), {}, special, ids);
}

bool Encoder::encode_part(std::string_view text, std::size_t length, Part part, bool special,
                          std::vector<std::uint32_t>& ids) {
  if (length > text.size() || (length == text.size() && !part.last))
    throw Error("text: a part that is not the last lacks the character after it");
  const std::size_t valid = valid_utf8_length(text);
  if (valid != text.size()) throw Error("text: byte " + std::to_string(valid) + " is not UTF-8");
  const PostProcessor& post = state_->t.post;
  const std::size_t before = ids.size();
  if (special && part.first) ids.insert(ids.end(), post.before.begin(), post.before.end());
  if (!state_->encode(text, length, part, ids)) {
    ids.resize(before);
    return false;
  }
  if (special && part.last) ids.insert(ids.end(), post.behind.begin(), post.behind.end());
  return true;
}

}  // namespace fp8::token
