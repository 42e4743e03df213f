// Encodes and decodes JSON Lines one record at a time.
#include "fp8/token/lines.h"

#include <unistd.h>

#include <charconv>
#include <limits>

#include "fp8/base/error.h"
#include "fp8/json/json.h"

namespace fp8::token {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16U;  // bytes written at a time

// Calls `make` with each record, its location for messages, and the output buffer, which is written in pieces.
void for_each_record(const std::vector<std::string>& inputs, const std::function<void(std::string_view)>& write,
                     const std::function<void(const json::Object&, const std::string&, std::string&)>& make) {
  std::string out;
  for (const std::string& input : inputs) {
    const std::string name = input == "-" ? "standard input" : input;
    json::LineReader lines = input == "-" ? json::LineReader(STDIN_FILENO, name) : json::LineReader(input);
    while (const std::optional<json::Value> record = lines.next()) {
      const std::string where = name + ": line " + std::to_string(lines.line());
      if (!record->is_object()) throw Error(where + ": not an object");
      make(record->as_object(), where, out);
      if (out.size() < kPiece) continue;
      write(out);
      out.clear();
    }
  }
  if (!out.empty()) write(out);
}

void append_ids(std::string& out, const std::vector<std::uint32_t>& ids) {
  out += "{\"ids\":[";
  std::array<char, 16> digits{};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i != 0) out += ',';
    out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), ids[i]).ptr);
  }
  out += "]}\n";
}

}  // namespace

void encode_lines(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, bool special,
                  const std::function<void(std::string_view)>& write) {
  Encoder encoder(tokenizer);
  std::vector<std::uint32_t> ids;
  for_each_record(inputs, write, [&](const json::Object& record, const std::string& where, std::string& out) {
    ids.clear();
    try {
      encoder.encode(record.get_string("text", where), special, ids);
    } catch (const Error& e) {
      const std::string_view reason = e.what();
      throw Error(reason.starts_with(where) ? e.what() : where + ": " + e.what());
    }
    append_ids(out, ids);
  });
}

void decode_lines(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, bool skip_special,
                  const std::function<void(std::string_view)>& write) {
  std::vector<std::uint32_t> ids;
  for_each_record(inputs, write, [&](const json::Object& record, const std::string& where, std::string& out) {
    ids.clear();
    for (const json::Value& id : record.get_array("ids", where)) {
      const std::int64_t n = id.is_int() ? id.as_int() : -1;
      if (n < 0 || n > std::numeric_limits<std::uint32_t>::max())
        throw Error(where + ": an id is not an integer from 0");
      ids.push_back(static_cast<std::uint32_t>(n));
    }
    out += json::dump(json::object({{"text", tokenizer.decode(ids, skip_special)}})) + "\n";
  });
}

}  // namespace fp8::token
