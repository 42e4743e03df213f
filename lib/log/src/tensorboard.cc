// Writes TensorBoard event files without protobuf: only a few fields of one message are needed.
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "export_piece.h"
#include "fp8/log/export.h"

namespace fp8::log {
namespace {

constexpr std::uint32_t kMaskDelta = 0xa282ead8U;

// CRC table; polynomial 0x1EDC6F41, reflected.
constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t r = i;
    for (int bit = 0; bit < 8; ++bit) r = (r >> 1U) ^ ((r & 1U) != 0 ? 0x82F63B78U : 0U);
    table[i] = r;
  }
  return table;
}();

template <typename T>
void append_little_endian(T value, std::string& out) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

void append_varint(std::uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>(static_cast<unsigned char>(value | 0x80U));
  out += static_cast<char>(value);
}

// Wire types of protobuf.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_key(std::uint32_t field, Wire wire, std::string& out) {
  append_varint((field << 3U) | static_cast<std::uint32_t>(wire), out);
}

void append_bytes(std::uint32_t field, std::string_view bytes, std::string& out) {
  append_key(field, Wire::bytes, out);
  append_varint(bytes.size(), out);
  out += bytes;
}

void append_double(std::uint32_t field, double value, std::string& out) {
  append_key(field, Wire::fixed64, out);
  append_little_endian(std::bit_cast<std::uint64_t>(value), out);
}

// Fields of event.proto and summary.proto.
constexpr std::uint32_t kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5;
constexpr std::uint32_t kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;

std::string event(double wall_time, std::int64_t step) {
  std::string out;
  append_double(kEventWallTime, wall_time, out);
  append_key(kEventStep, Wire::varint, out);
  append_varint(static_cast<std::uint64_t>(step), out);
  return out;
}

// A value of a summary.
void append_scalar(std::string_view tag, double value, std::string& summary) {
  std::string message;
  append_bytes(kValueTag, tag, message);
  append_key(kValueSimple, Wire::fixed32, message);
  append_little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(value)), message);
  append_bytes(kSummaryValue, message, summary);
}

std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + kMaskDelta; }

// Buffers records and writes them in pieces.
class RecordWriter {
 public:
  explicit RecordWriter(const Sink& sink) : sink_(sink) {}
  void write(std::string_view data) {
    std::string length;
    append_little_endian(static_cast<std::uint64_t>(data.size()), length);
    piece_ += length;
    append_little_endian(masked_crc(length), piece_);
    piece_ += data;
    append_little_endian(masked_crc(data), piece_);
    if (piece_.size() >= kExportPiece) flush();
  }
  void flush() {
    sink_(piece_);
    piece_.clear();
  }

 private:
  const Sink& sink_;
  std::string piece_;
};

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t r = ~std::uint32_t{0};
  for (const char c : bytes) r = (r >> 8U) ^ kTable.at((r ^ static_cast<unsigned char>(c)) & 0xFFU);
  return ~r;
}

void write_tensorboard(const Run& run, const Sink& sink) {
  RecordWriter writer(sink);
  std::string first;
  append_double(kEventWallTime, 0, first);
  append_bytes(kEventFileVersion, "brain.Event:2", first);
  writer.write(first);
  const std::span<const double> seconds = run.find("step_s"), times = run.find("time");
  double wall_time = 0;
  auto evaluation = run.evaluations.begin();
  const auto evaluations_before = [&](std::int64_t step) {
    for (; evaluation != run.evaluations.end() && evaluation->first < step; ++evaluation) {
      if (std::isfinite(evaluation->second.time)) wall_time = evaluation->second.time;
      std::string summary, message = event(wall_time, evaluation->first);
      append_scalar("eval/loss", evaluation->second.loss, summary);
      append_bytes(kEventSummary, summary, message);
      writer.write(message);
    }
  };
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    evaluations_before(run.steps[i]);
    if (!seconds.empty() && std::isfinite(seconds[i])) wall_time += seconds[i];
    if (!times.empty() && std::isfinite(times[i])) wall_time = times[i];
    std::string summary, message = event(wall_time, run.steps[i]);
    for (const Column& column : run.columns) {
      if (column.name != "time" && std::isfinite(column.values[i]))
        append_scalar(column.name, column.values[i], summary);
    }
    append_bytes(kEventSummary, summary, message);
    writer.write(message);
  }
  evaluations_before(std::numeric_limits<std::int64_t>::max());
  writer.flush();
}

}  // namespace fp8::log
