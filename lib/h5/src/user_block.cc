// The user block: formatting, checking, and comparison of the file with it.
#include "fp8/h5/user_block.h"

#include <algorithm>
#include <filesystem>

#include "digests.h"
#include "fp8/base/checked.h"
#include "fp8/base/digest.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "library.h"

namespace fp8::h5 {
namespace {

// The next word of `line` up to a space; removes both.
std::string_view take_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

}  // namespace

std::string format_user_block(std::string_view magic, const UserBlock& block) {
  std::string text = std::string(magic) + " 1 " + std::to_string(block.file_bytes) + " " + block.digest + "\n";
  if (text.size() > kUserBlockBytes) throw Error("user block: too long");
  text.resize(kUserBlockBytes, '\0');
  return text;
}

bool has_magic(const std::string& path, std::string_view magic) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  try {
    File file = File::open_read(path);
    std::string head(magic.size() + 1, '\0');
    if (file.size() < head.size()) return false;
    file.read_exact(std::as_writable_bytes(std::span(head)));
    return head.starts_with(magic) && head.ends_with(' ');
  } catch (const Error&) {
    return false;
  }
}

UserBlock read_user_block(const File& file, std::string_view magic) {
  const std::string& path = file.path();
  const std::uint64_t size = file.size();
  const std::string kind = magic == kTokensMagic ? "token file" : "checkpoint";
  if (size < kUserBlockBytes)
    throw Error(path + ": not a " + kind + " (or truncated): " + std::to_string(size) + " bytes");
  std::string text(kUserBlockBytes, '\0');
  file.pread_exact(std::as_writable_bytes(std::span(text)), 0);
  std::string_view line = std::string_view(text).substr(0, std::min(text.find('\n'), text.size()));
  if (take_word(line) != magic)
    throw Error(path + ": not a " + kind + ": it does not begin with " + std::string(magic));
  const std::string_view version = take_word(line);
  if (version != "1")
    throw Error(path + ": version " + terminal_safe(version) + " of the file format is not known (1 is)");
  const auto length = parse_uint64(take_word(line));
  const std::string_view digest = take_word(line);
  if (!length || !Digest::from_hex(digest)) throw Error(path + ": damaged: its user block cannot be read");
  UserBlock block{*length, std::string(digest)};
  if (size < block.file_bytes)
    throw Error(path + ": truncated: " + std::to_string(size) + " bytes of " + std::to_string(block.file_bytes));
  if (size > block.file_bytes)
    throw Error(path + ": damaged: " + std::to_string(size - block.file_bytes) + " bytes after its end");
  if (text != format_user_block(magic, block)) throw Error(path + ": damaged: its user block is not as written");
  return block;
}

void verify_file(const Reader& reader, const Destination& destination, const ValueRule& rule) {
  const std::string& path = reader.path();
  std::vector<Part> parts;
  for (const Entry& e : reader.list()) {
    parts.push_back(
        {e.name, e.offset, e.bytes, text_or_empty(e.attributes, "digest"), e.dtype, rule ? rule(e.name) : Values::any});
    Part& part = parts.back();
    if (part.digest.empty()) throw Error(message(path, e.name, "has no digest"));
    if (destination && e.bytes > 0) part.into = destination(e);
    if (!part.into.empty() && part.into.size() != e.bytes)
      throw Error(message(path, e.name, "buffer size differs from its size"));
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.offset < b.offset; });
  const FileDigests found = check_digests(reader.file(), parts, reader.file_bytes());
  if (found.whole != reader.stated_digest())
    throw Error(path + ": damaged: the digest of the whole file differs, though no tensor does");
  if (!found.invalid.empty()) throw Error(path + ": " + found.invalid.front());
}

}  // namespace fp8::h5
