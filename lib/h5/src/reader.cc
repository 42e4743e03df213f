// Reading after the scan: plain reads at checked offsets. HDF5 is not used here.
#include "fp8/h5/reader.h"

#include <algorithm>
#include <filesystem>

#include "digests.h"
#include "fp8/base/checked.h"
#include "fp8/base/digest.h"
#include "fp8/base/file.h"
#include "fp8/h5/user_block.h"
#include "library.h"
#include "walk.h"

namespace fp8::h5 {
namespace {

std::string_view without_slash(std::string_view name) { return name.starts_with('/') ? name.substr(1) : name; }

}  // namespace

File open_regular(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(path + ": not a regular file");
  return File::open_read(path);
}

struct Reader::State {
  File file;
  std::uint64_t file_bytes = 0;
  std::string digest;
  Contents contents;
};

Reader::Reader(const std::string& path, std::string_view magic) : Reader(open_regular(path), magic) {}

Reader::Reader(File file, std::string_view magic) {
  auto state = std::make_unique<State>();
  state->digest = read_user_block(file, magic).digest;
  state->file = std::move(file);
  state->file_bytes = state->file.size();
  state->contents = walk(state->file);
  state_ = std::move(state);
}

Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

const File& Reader::file() const { return state_->file; }
const std::string& Reader::path() const { return state_->file.path(); }
std::uint64_t Reader::file_bytes() const { return state_->file_bytes; }
const std::string& Reader::stated_digest() const { return state_->digest; }
const std::vector<Entry>& Reader::list() const { return state_->contents.entries; }

const Entry* Reader::find(std::string_view name) const {
  const std::string_view wanted = without_slash(name);
  const auto& entries = list();
  const auto it = std::lower_bound(entries.begin(), entries.end(), wanted,
                                   [](const Entry& e, std::string_view n) { return std::string_view(e.name) < n; });
  return it != entries.end() && it->name == wanted ? &*it : nullptr;
}

const Entry& Reader::at(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) throw Error(message(path(), without_slash(name), "there is no such dataset"));
  return *entry;
}

const Attributes& Reader::group(std::string_view name) const {
  const auto it = state_->contents.groups.find(without_slash(name));
  if (it == state_->contents.groups.end()) throw Error(message(path(), without_slash(name), "there is no such group"));
  return it->second;
}

void Reader::read(std::string_view name, std::span<std::byte> out) const {
  const Entry& entry = at(name);
  if (out.size() != entry.bytes) throw Error(message(path(), entry.name, "buffer size differs from its size"));
  if (!out.empty()) state_->file.pread_exact(out, entry.offset);
}

void Reader::read_rows(std::string_view name, std::int64_t begin, std::int64_t end, std::span<std::byte> out) const {
  const Entry& entry = at(name);
  if (begin < 0 || end < begin || end > entry.rows())
    throw Error(message(path(), entry.name, "has no rows " + std::to_string(begin) + " to " + std::to_string(end)));
  const std::uint64_t row = entry.row_bytes();
  if (out.size() != static_cast<std::uint64_t>(end - begin) * row)
    throw Error(message(path(), entry.name, "buffer size differs from the size of its rows"));
  if (!out.empty()) state_->file.pread_exact(out, entry.offset + static_cast<std::uint64_t>(begin) * row);
}

void Reader::verify(std::string_view name) const {
  const Entry& entry = at(name);
  const std::string stated = text_or_empty(entry.attributes, "digest");
  if (stated.empty()) return;
  Digester digester;
  std::vector<std::byte> piece;
  for (std::uint64_t done = 0; done < entry.bytes; done += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kDigestPiece, entry.bytes - done)));
    state_->file.pread_exact(piece, entry.offset + done);
    digester.update(piece);
  }
  check_digest(path(), entry.name, digester.finish(), stated);
}

std::string Reader::read_text(std::string_view name, std::uint64_t limit) const {
  const Entry& entry = at(name);
  if (entry.dtype != DType::u8 || entry.shape.size() != 1) throw Error(message(path(), entry.name, "is not text"));
  std::string text(element_count(name, 1, limit), '\0');
  read(name, std::as_writable_bytes(std::span(text)));
  check_digest(path(), entry.name, digest_of(std::as_bytes(std::span(text))),
               text_or_empty(entry.attributes, "digest"));
  return text;
}

std::size_t Reader::element_count(std::string_view name, std::size_t element_bytes, std::uint64_t limit) const {
  const Entry& entry = at(name);
  if (dtype::size_of(entry.dtype) != element_bytes)
    throw Error(message(path(), entry.name, "its elements do not have " + std::to_string(element_bytes) + " bytes"));
  if (entry.bytes > limit) throw Error(message(path(), entry.name, "larger than " + std::to_string(limit) + " bytes"));
  return checked_cast<std::size_t>(entry.bytes) / element_bytes;
}

}  // namespace fp8::h5
