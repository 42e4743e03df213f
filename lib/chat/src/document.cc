// Rendering, masks and truncation.
#include "fp8/chat/document.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::chat {
namespace {

constexpr std::array<std::pair<std::string_view, Mask>, 3> kMasks = {
    {{"assistant", Mask::assistant}, {"last", Mask::last}, {"all", Mask::all}}};

bool uses(const Template& form, Piece::Kind kind) {
  return std::ranges::any_of(std::array{&form.begin, &form.prompt, &form.answer}, [&](const auto* pieces) {
    return std::ranges::find(*pieces, kind, &Piece::kind) != pieces->end();
  });
}

const std::string& text_for(const Part& part, const std::string& system, const Turn& turn) {
  if (part.kind == PartKind::user) return turn.user;
  if (part.kind == PartKind::answer) return turn.answer;
  return part.kind == PartKind::system || part.kind == PartKind::content ? system : part.text;
}

std::string join(const std::vector<Part>& parts, const std::string& system, const Turn& turn) {
  std::string text;
  for (const Part& part : parts) text += text_for(part, system, turn);
  return text;
}

}  // namespace

std::optional<Mask> parse_mask(std::string_view name) {
  const auto* const found = std::ranges::find(kMasks, name, &std::pair<std::string_view, Mask>::first);
  return found == kMasks.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::pair<std::size_t, std::size_t>> spans_of(const std::vector<std::uint8_t>& mask) {
  std::vector<std::pair<std::size_t, std::size_t>> spans;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    const std::size_t begin = i;
    while (i < mask.size() && mask[i] != 0) ++i;
    spans.emplace_back(begin, i);
  }
  return spans;
}

PairLengths truncate_pair(std::size_t prompt, std::size_t answer, std::size_t room) {
  std::size_t most = room;
  if (2 * answer >= room) {
    most = 2 * prompt < room
               ? room - prompt
               : static_cast<std::size_t>(std::floor(
                     static_cast<double>(room) * (static_cast<double>(answer) / static_cast<double>(prompt + answer))));
  }
  const std::size_t kept = std::min(most, answer);
  return {std::min(room - kept, prompt), kept};
}

Document assemble(const std::vector<Pair>& pairs, Mask mask, std::optional<std::size_t> cutoff) {
  Document out;
  for (const Pair& pair : pairs) out.whole += pair.prompt.size() + pair.answer.size();
  const std::size_t limit = cutoff.value_or(out.whole);
  const std::size_t n = pairs.size();
  std::vector<PairLengths> kept(n);
  std::size_t done = 0;
  for (std::size_t i = 0; i < n && done < limit; ++i) {
    const std::size_t at = mask == Mask::last ? n - 1 - i : i;
    kept[at] = truncate_pair(pairs[at].prompt.size(), pairs[at].answer.size(), limit - done);
    done += kept[at].prompt + kept[at].answer;
  }
  out.ids.reserve(done);
  out.mask.reserve(done);
  for (std::size_t i = 0; i < n; ++i) {
    const auto add = [&](const std::vector<std::uint32_t>& ids, std::size_t count, bool counts) {
      out.ids.insert(out.ids.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
      out.mask.insert(out.mask.end(), count, counts ? 1 : 0);
    };
    add(pairs[i].prompt, kept[i].prompt, pairs[i].prompt_counts && mask == Mask::all);
    add(pairs[i].answer, kept[i].answer, pairs[i].answer_counts && (mask != Mask::last || i + 1 == n));
  }
  return out;
}

Renderer::Renderer(Template form, const token::Tokenizer& tokenizer)
    : Renderer(std::move(form), tokenizer, read_special_tokens(tokenizer)) {}

Renderer::Renderer(Template form, const token::Tokenizer& tokenizer, SpecialTokens special)
    : form_(std::move(form)), tokenizer_(tokenizer), special_(std::move(special)) {
  token::Encoder encoder(tokenizer);
  for (const std::string& token : form_.tokens) {
    // An entry of the vocabulary that is not an added token would not be found in a text.
    std::vector<std::uint32_t> ids;
    encoder.encode(token, false, ids);
    const std::optional<std::uint32_t> id = tokenizer.id_of(token);
    if (id && ids == std::vector{*id}) continue;
    throw Error(tokenizer.path() + ": " + terminal_safe(excerpt(token)) +
                " is not a token of it, but the template needs it (" + form_.path + ")");
  }
  if (!form_.eos.empty()) {
    special_.eos = form_.eos;
    if (!tokenizer.id_of(form_.eos))
      throw Error(form_.path + ": \"eos\": " + terminal_safe(excerpt(form_.eos)) + " is not a token of " +
                  tokenizer.path());
  }
  if (uses(form_, Piece::Kind::bos)) bos_ = id_of(special_.bos, "bos_token");
  if (uses(form_, Piece::Kind::eos)) eos_ = id_of(special_.eos, "eos_token");
}

std::uint32_t Renderer::id_of(const std::optional<std::string>& token, const char* name) const {
  if (!token) {
    throw Error(special_.path + ": no " + name + ", but the template needs it (" + form_.path + ")");
  }
  const std::optional<std::uint32_t> id = tokenizer_.id_of(*token);
  if (id) return *id;
  throw Error(special_.path + ": " + name + " " + terminal_safe(excerpt(*token)) + " is not a token of " +
              tokenizer_.path());
}

std::uint32_t Renderer::padding() const {
  return special_.pad ? id_of(special_.pad, "pad_token") : id_of(special_.eos, "eos_token");
}

bool Renderer::marks_end() const {
  token::Encoder encoder(tokenizer_);
  std::vector<std::uint32_t> ids;
  append(form_.answer, "", {"a", "a"}, encoder, ids);
  return tokenizer_.decode(ids, false) != tokenizer_.decode(ids, true);
}

void Renderer::append(const std::vector<Piece>& pieces, const std::string& system, const Turn& turn,
                      token::Encoder& encoder, std::vector<std::uint32_t>& ids) const {
  for (const Piece& piece : pieces) {
    if (piece.kind == Piece::Kind::text) {
      const std::string text = join(piece.parts, system, turn);
      if (!text.empty()) encoder.encode(text, false, ids);
    } else {
      ids.push_back(piece.kind == Piece::Kind::bos ? bos_ : eos_);
    }
  }
}

std::vector<Pair> Renderer::render(const Conversation& conversation, token::Encoder& encoder) const {
  std::string system = conversation.system.empty() ? form_.default_system : conversation.system;
  if (!system.empty()) {
    if (!form_.system) throw Error("the template has no place for a system prompt");
    system = join(*form_.system, system, {});
  }
  std::vector<Pair> pairs;
  for (const Turn& turn : conversation.turns) {
    Pair& pair = pairs.emplace_back();
    pair.prompt_counts = turn.user_counts;
    pair.answer_counts = turn.answer_counts;
    if (pairs.size() == 1) append(form_.begin, system, turn, encoder, pair.prompt);
    append(form_.prompt, system, turn, encoder, pair.prompt);
    append(form_.answer, system, turn, encoder, pair.answer);
    system.clear();  // the first turn only
  }
  return pairs;
}

std::vector<std::uint32_t> Renderer::render_prompt(const Conversation& conversation, token::Encoder& encoder) const {
  std::vector<Pair> pairs = render(conversation, encoder);
  if (!pairs.empty()) pairs.back().answer.clear();
  return assemble(pairs, Mask::all, {}).ids;
}

}  // namespace fp8::chat
