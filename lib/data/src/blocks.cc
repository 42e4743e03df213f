// Computes and compares the digests of blocks.
#include "blocks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/round.h"

namespace fp8::data {
namespace {

std::array<std::byte, kDigestBytes> bytes_of(const Digest& digest) {
  std::array<std::byte, kDigestBytes> bytes{};
  for (std::size_t i = 0; i < kDigestBytes; ++i) {
    const std::uint64_t half = i < 8 ? digest.hi : digest.lo;
    bytes.at(i) = static_cast<std::byte>(half >> (56 - 8 * (i % 8)));
  }
  return bytes;
}

std::uint64_t blocks_of(std::uint64_t bytes) { return divide_up(bytes, kBlockBytes); }

}  // namespace

void BlockDigester::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kBlockBytes - in_block_);
    block_.update(bytes.first(n));
    in_block_ += n;
    bytes = bytes.subspan(n);
    if (in_block_ == kBlockBytes) end_block();
  }
}

void BlockDigester::end_block() {
  const auto bytes = bytes_of(block_.finish());
  digests_.insert(digests_.end(), bytes.begin(), bytes.end());
  block_ = Digester();
  in_block_ = 0;
}

std::vector<std::byte> BlockDigester::finish() {
  if (in_block_ > 0) end_block();
  return std::move(digests_);
}

CheckedVector::CheckedVector(const h5::Reader& file, std::string dataset, const std::string& digests)
    : file_(file),
      dataset_(std::move(dataset)),
      bytes_(file.at(dataset_).bytes),
      element_bytes_(dtype::size_of(file.at(dataset_).dtype)) {
  const h5::Entry* entry = file.find(digests);
  if (entry == nullptr) {
    file.verify(dataset_);
    return;
  }
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(blocks_of(bytes_)), kDigestBytes};
  if (entry->dtype != dtype::DType::u8 || entry->shape != shape) {
    throw Error(file.path() + ": /" + digests + ": must be uint8 [" + std::to_string(shape[0]) +
                ", 16], a digest for each 64 KiB of /" + dataset_);
  }
  file.verify(digests);
  digests_ = file.read_as<std::byte>(digests);
}

void CheckedVector::read_bytes(std::uint64_t begin, std::span<std::byte> out) const {
  file_.read_rows(dataset_, static_cast<std::int64_t>(begin / element_bytes_),
                  static_cast<std::int64_t>((begin + out.size()) / element_bytes_), out);
}

void CheckedVector::check(std::uint64_t block, std::span<const std::byte> bytes) const {
  const auto stated = std::span(digests_).subspan(static_cast<std::size_t>(block) * kDigestBytes, kDigestBytes);
  if (std::ranges::equal(bytes_of(digest_of(bytes)), stated)) return;
  const std::uint64_t begin = file_.at(dataset_).offset + block * kBlockBytes;
  throw Error(file_.path() + ": /" + dataset_ + ": damaged: block " + std::to_string(block) + ", bytes " +
              std::to_string(begin) + " to " + std::to_string(begin + bytes.size()) +
              " of the file, differs from its digest; make the file again");
}

void CheckedVector::read(std::uint64_t begin, std::span<std::byte> out) const {
  if (digests_.empty()) return read_bytes(begin, out);
  std::vector<std::byte> whole;
  while (!out.empty()) {
    const std::uint64_t block = begin / kBlockBytes, first = block * kBlockBytes,
                        last = std::min<std::uint64_t>(first + kBlockBytes, bytes_);
    const auto part = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), last - begin)));
    whole.resize(static_cast<std::size_t>(last - first));  // the compared bytes are the ones that are used
    read_bytes(first, whole);
    check(block, whole);
    std::memcpy(part.data(), whole.data() + (begin - first), part.size());
    begin += part.size();
    out = out.subspan(part.size());
  }
}

}  // namespace fp8::data
