// One pass over the file, dataset by dataset; each piece is digested for all digesters while it is in the cache.
#include "digests.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/dtype/finite.h"
#include "library.h"

namespace fp8::h5 {
namespace {

// Feeds pieces of a file to digesters.
class Feeder {
 public:
  Feeder(const File& file, std::uint64_t size, const PieceRunner& run)
      : file_(file),
        size_(size),
        run_(run),
        buffer_(static_cast<std::size_t>(std::min<std::uint64_t>(size, kDigestPiece))) {}

  // Reads the bytes [begin, end) and copies them to `into` if it has room. Returns false if one of the elements, of
  // `dtype`, is not among `values`.
  bool feed(std::uint64_t begin, std::uint64_t end, std::initializer_list<Digester*> digesters,
            std::span<std::byte> into = {}, DType dtype = DType::u8, Values values = Values::any) {
    bool valid = true;
    if (begin < end && end > size_)  // the buffer of an empty file is empty, so no read would fail
      throw Error(file_.path() + ": cut short: " + std::to_string(size_) + " bytes of " + std::to_string(end));
    while (begin < end) {
      const std::size_t n = std::min<std::uint64_t>(end - begin, buffer_.size());
      const auto piece = (into.empty() ? std::span(buffer_) : into).first(n);
      if (!into.empty()) into = into.subspan(n);
      run_piece(run_, [&] {
        file_.pread_exact(piece, begin);
        for (Digester* d : digesters) d->update(piece);
        valid = valid && (values == Values::any || dtype::all_finite(dtype, piece, values == Values::finite_unsigned));
      });
      begin += piece.size();
    }
    return valid;
  }

 private:
  const File& file_;
  std::uint64_t size_;
  const PieceRunner& run_;
  std::vector<std::byte> buffer_;
};

}  // namespace

void check_digest(const std::string& path, std::string_view name, const Digest& digest, std::string_view stated) {
  if (digest.hex() != stated) throw Error(message(path, name, "damaged: its bytes differ from its digest"));
}

FileDigests check_digests(const File& file, const std::vector<Part>& parts, std::uint64_t size,
                          const PieceRunner& run) {
  Feeder feeder(file, size, run);
  Digester whole;
  Digester between;
  std::vector<std::string> invalid;
  std::uint64_t position = kUserBlockBytes;
  for (const Part& p : parts) {
    Digester part;
    bool valid = true;
    if (p.bytes > 0) {
      feeder.feed(position, p.offset, {&whole, &between});
      position = p.offset + p.bytes;
      valid = feeder.feed(p.offset, position, {&whole, &part}, p.into, p.dtype, p.values);
    }
    check_digest(file.path(), p.name, part.finish(), p.digest);
    if (!valid)
      invalid.push_back("/" + p.name + ": holds a value that is not finite" +
                        (p.values == Values::finite_unsigned ? " or below 0" : ""));
  }
  feeder.feed(position, size, {&whole, &between});
  return {whole.finish().hex(), between.finish().hex(), std::move(invalid)};
}

}  // namespace fp8::h5
