// Object headers, and shared checks: bounds, signatures, checksums.
#include "metadata.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "fp8/base/error.h"
#include "fp8/h5/types.h"
#include "library.h"

namespace fp8::h5 {
namespace {

constexpr std::uint8_t kNil = 0x00;
constexpr std::uint8_t kContinuation = 0x10;
constexpr std::size_t kChecksumBytes = 4;
constexpr std::uint64_t kMaxPart = std::uint64_t{64} << 20U;  // bytes; a file may be sparse, so its size is no bound
constexpr std::uint64_t kMaxMetadata = std::uint64_t{4} << 30U;

// Appends the messages of a chunk; continuations go to `more` as address and length.
void parse_messages(std::span<const std::byte> chunk, bool ordered, const Location& place,
                    std::vector<Message>& messages, std::vector<std::pair<std::uint64_t, std::uint64_t>>& more) {
  const std::size_t head = ordered ? 6 : 4;
  Cursor at(chunk, place);
  while (at.left() >= head) {
    Message message;
    message.type = static_cast<std::uint8_t>(at.number(1));
    const std::uint64_t size = at.number(2);
    message.shared = (at.number(1) & 2U) != 0;
    if (ordered) at.take(2);
    message.body = at.take(size);
    if (message.type == kNil) continue;
    if (message.type == kContinuation) {
      Cursor body(message.body, place);
      const std::uint64_t address = body.number(8);
      more.emplace_back(address, body.number(8));
    } else {
      messages.push_back(message);
    }
  }
}

}  // namespace

std::uint32_t metadata_checksum(std::span<const std::byte> bytes) {
  std::uint32_t a = 0xdeadbeefU + static_cast<std::uint32_t>(bytes.size()), b = a, c = a;
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = std::min(bytes.size(), at + 4); i-- > at;)
      value = value << 8U | std::to_integer<std::uint32_t>(bytes[i]);
    return value;
  };
  const auto step = [](std::uint32_t& x, std::uint32_t& y, std::uint32_t& z, int turn) {
    x = (x - z) ^ std::rotl(z, turn);
    z += y;
  };
  const auto last = [](std::uint32_t& x, std::uint32_t y, int turn) { x = (x ^ y) - std::rotl(y, turn); };
  std::size_t at = 0;
  for (; bytes.size() - at > 12; at += 12) {
    a += word(at), b += word(at + 4), c += word(at + 8);
    step(a, b, c, 4), step(b, c, a, 6), step(c, a, b, 8), step(a, b, c, 16), step(b, c, a, 19), step(c, a, b, 4);
  }
  if (at == bytes.size()) return c;
  a += word(at), b += word(at + 4), c += word(at + 8);
  last(c, b, 14), last(a, c, 11), last(b, a, 25), last(c, b, 16), last(a, c, 4), last(b, a, 14), last(c, b, 24);
  return c;
}

void Location::fail(const std::string& reason) const { throw Error(message(path, name, reason)); }

std::uint64_t Cursor::number(std::size_t width) {
  std::uint64_t value = 0;
  const auto bytes = take(width);
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

std::span<const std::byte> Cursor::take(std::uint64_t count) {
  if (count > bytes_.size()) place_->fail("damaged: a metadata block is truncated");
  const auto taken = bytes_.first(static_cast<std::size_t>(count));
  bytes_ = bytes_.subspan(taken.size());
  return taken;
}

Metadata::Metadata(const File& file)
    : place{file.path(), ""},
      file_(file),
      bytes_(file.size() - kUserBlockBytes),
      left_(std::min(bytes_, kMaxMetadata)) {}

std::vector<std::byte> Metadata::read(std::uint64_t address, std::uint64_t length) {
  if (address > bytes_ || length > bytes_ - address) place.fail("damaged: its metadata is outside the file");
  if (length > kMaxPart) place.fail("a metadata block is larger than 64 MiB");
  if (length > left_) place.fail("damaged: metadata blocks overlap");
  left_ -= length;
  std::vector<std::byte> bytes(static_cast<std::size_t>(length));
  file_.pread_exact(bytes, kUserBlockBytes + address);
  return bytes;
}

std::vector<std::byte> Metadata::block(std::uint64_t address, std::uint64_t length, std::string_view signature) {
  std::vector<std::byte> bytes = read(address, length);
  if (bytes.size() < signature.size() + kChecksumBytes ||
      std::memcmp(bytes.data(), signature.data(), signature.size()) != 0)
    place.fail("damaged: a metadata block has the wrong signature");
  const std::span<const std::byte> body(bytes.data(), bytes.size() - kChecksumBytes);
  Cursor stated(std::span<const std::byte>(bytes).subspan(body.size()), place);
  if (metadata_checksum(body) != stated.number(kChecksumBytes))
    place.fail("damaged: a metadata block differs from its checksum");
  return bytes;
}

std::vector<std::byte> Metadata::peek(std::uint64_t address) const {
  if (address > bytes_) place.fail("damaged: its metadata is outside the file");
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min<std::uint64_t>(64, bytes_ - address)));
  file_.pread_exact(bytes, kUserBlockBytes + address);
  return bytes;
}

const Message* ObjectHeader::find(std::uint8_t type) const {
  const auto at = std::find_if(messages.begin(), messages.end(), [&](const Message& m) { return m.type == type; });
  return at == messages.end() ? nullptr : &*at;
}

ObjectHeader read_object_header(Metadata& file, std::uint64_t address) {
  constexpr std::string_view kSignature = "OHDR";
  const std::vector<std::byte> prefix = file.peek(address);
  if (prefix.size() < kSignature.size() || std::memcmp(prefix.data(), kSignature.data(), kSignature.size()) != 0)
    file.place.fail("its header has no checksum");
  Cursor head(prefix, file.place);
  head.take(kSignature.size());
  if (head.number(1) != 2) file.place.fail("damaged: its header is of an unknown version");
  const std::uint64_t flags = head.number(1);
  if ((flags & 0x20U) != 0) head.take(16);  // times
  if ((flags & 0x10U) != 0) head.take(4);   // limits of attributes kept in the header
  const std::uint64_t length = head.number(std::size_t{1} << (flags & 3U));
  const std::size_t begin = prefix.size() - head.left();
  if (length > kNoAddress - begin - kChecksumBytes) file.place.fail("damaged: its header is too long");

  ObjectHeader header;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> more;
  const auto add = [&](std::vector<std::byte> chunk, std::size_t first) {
    header.chunks.push_back(std::move(chunk));
    const std::span<const std::byte> bytes(header.chunks.back());
    parse_messages(bytes.subspan(first, bytes.size() - first - kChecksumBytes), (flags & 4U) != 0, file.place,
                   header.messages, more);
  };
  add(file.block(address, begin + length + kChecksumBytes, kSignature), begin);
  for (std::size_t i = 0; i < more.size(); ++i) {
    const auto [where, size] = more[i];
    add(file.block(where, size, "OCHK"), 4);
  }
  return header;
}

}  // namespace fp8::h5
