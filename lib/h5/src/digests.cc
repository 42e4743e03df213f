// One walk over the file, dataset by dataset; a piece is digested for all who want it while it is in the cache.
#include "digests.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "library.h"

namespace fp8::h5 {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;  // stays in the cache until it is digested

// Feeds pieces of a file to digesters.
class Feeder {
 public:
  Feeder(const File& file, std::uint64_t size)
      : file_(file), buffer_(static_cast<std::size_t>(std::min<std::uint64_t>(size, kPiece))) {}

  // The bytes [begin, end), none where there are none; they are left in `into` where that has room.
  void feed(std::uint64_t begin, std::uint64_t end, std::initializer_list<Digester*> digesters,
            std::span<std::byte> into = {}) {
    while (begin < end) {
      const std::size_t n = std::min<std::uint64_t>(end - begin, buffer_.size());
      const auto piece = (into.empty() ? std::span(buffer_) : into).first(n);
      if (!into.empty()) into = into.subspan(n);
      file_.pread_exact(piece, begin);
      for (Digester* d : digesters) d->update(piece);
      begin += piece.size();
    }
  }

 private:
  const File& file_;
  std::vector<std::byte> buffer_;
};

}  // namespace

void check_digest(const std::string& path, std::string_view name, const Digest& digest, std::string_view stated) {
  if (digest.hex() != stated) throw Error(message(path, name, "damaged: its bytes differ from its digest"));
}

std::string digest_between(const File& file, const std::vector<Part>& parts, std::uint64_t size) {
  Feeder feeder(file, size);
  Digester between;
  std::uint64_t position = kUserBlockBytes;
  for (const Part& p : parts) {
    if (p.bytes == 0) continue;
    feeder.feed(position, p.offset, {&between});
    position = p.offset + p.bytes;
  }
  feeder.feed(position, size, {&between});
  return between.finish().hex();
}

FileDigests check_digests(const File& file, const std::vector<Part>& parts, std::uint64_t size) {
  Feeder feeder(file, size);
  Digester whole;
  Digester between;
  std::uint64_t position = kUserBlockBytes;
  for (const Part& p : parts) {
    Digester part;
    if (p.bytes > 0) {
      feeder.feed(position, p.offset, {&whole, &between});
      position = p.offset + p.bytes;
      feeder.feed(p.offset, position, {&whole, &part}, p.into);
    }
    check_digest(file.path(), p.name, part.finish(), p.digest);
  }
  feeder.feed(position, size, {&whole, &between});
  return {whole.finish().hex(), between.finish().hex()};
}

}  // namespace fp8::h5
