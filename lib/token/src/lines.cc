// JSON Lines through a tokenizer: batches of records, each converted by its own thread.
#include "fp8/token/lines.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/ordered.h"
#include "fp8/json/records.h"
#include "fp8/token/encoder_pool.h"

namespace fp8::token {
namespace {

constexpr std::size_t kBatch = std::size_t{1} << 20U;  // bytes of JSON that a thread converts at a time

// Records of one input.
struct Batch {
  std::string name;
  std::vector<json::Record> records;
};

// Converts one record; `where` names it in messages. Appends a line to the text.
using Convert = std::function<void(const json::Object& record, const std::string& where, std::string& out)>;

// Lines, and the error that ended them.
struct Converted {
  std::string lines;
  std::optional<Error> error;
};

Converted convert_all(const Batch& batch, const Convert& convert) {
  Converted out;
  for (const json::Record& record : batch.records) {
    const std::string where = batch.name + ": line " + std::to_string(record.line);
    try {
      const json::Value value = json::parse(record, batch.name);
      if (!value.is_object()) throw Error(where + ": not an object");
      convert(value.as_object(), where, out.lines);
    } catch (const Error& e) {
      out.error = e;
      break;
    }
  }
  return out;
}

// Passes the lines that `work` makes of all records to `write`, in their order, up to the first error, which is thrown.
void convert_inputs(const std::vector<std::string>& inputs, const std::function<void(std::string_view)>& write,
                    const std::function<Converted(Batch)>& work) {
  OrderedTasks<Batch, Converted> batches(work, [&](const Converted& converted) {
    write(converted.lines);
    if (converted.error) throw Error(*converted.error);
  });
  for (const std::string& input : inputs) {
    json::RecordReader reader(input, json::Layout::lines);
    json::read_batches(
        reader, kBatch,
        [&](std::vector<json::Record> records) {
          batches.add({reader.name(), std::move(records)});
          return true;
        },
        [&] { batches.finish(); });
  }
  batches.finish();
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
  EncoderPool encoders(tokenizer);
  convert_inputs(inputs, write, [&](const Batch& batch) {
    return encoders.with([&](Encoder& encoder) {
      std::vector<std::uint32_t> ids;
      return convert_all(batch, [&](const json::Object& record, const std::string& where, std::string& out) {
        ids.clear();
        const std::string& text = record.get_string("text", where);
        try {
          encoder.encode(text, special, ids);
        } catch (const Error& e) {
          throw Error(where + ": " + e.what());
        }
        append_ids(out, ids);
      });
    });
  });
}

void decode_lines(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, bool skip_special,
                  const std::function<void(std::string_view)>& write) {
  const auto decode = [&](const json::Object& record, const std::string& where, std::string& out) {
    std::vector<std::uint32_t> ids;
    for (const json::Value& id : record.get_array("ids", where)) {
      const std::int64_t n = id.is_int() ? id.as_int() : -1;
      if (n < 0 || n > std::numeric_limits<std::uint32_t>::max())
        throw Error(where + ": an id is not an integer from 0");
      ids.push_back(static_cast<std::uint32_t>(n));
    }
    out += json::dump(json::object({{"text", tokenizer.decode(ids, skip_special)}})) + "\n";
  };
  convert_inputs(inputs, write, [&](const Batch& batch) { return convert_all(batch, decode); });
}

}  // namespace fp8::token
