// The scan of an untrusted file after its user block, without HDF5: metadata.h reads the object headers, and each
// message in them must be on the allow-list here. The tests compare the result with what HDF5 finds.
#include "walk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "fp8/base/checked.h"
#include "fp8/base/text.h"
#include "library.h"
#include "metadata.h"

namespace fp8::h5 {
namespace {

// Types of messages.
enum MessageType : std::uint8_t {
  kDataspace = 0x01,
  kLinkInfo = 0x02,
  kDatatype = 0x03,
  kFillValue = 0x05,
  kLink = 0x06,
  kExternal = 0x07,
  kLayout = 0x08,
  kGroupInfo = 0x0a,
  kFilters = 0x0b,
  kAttribute = 0x0c,
  kSymbolTable = 0x11,
  kAttributeInfo = 0x15,
  kReferences = 0x16,
};

struct Link {
  std::string name;
  bool hard = false;
  std::uint64_t address = 0;
};

// A datatype as described in the file.
struct Stored {
  unsigned kind = 0;  // 0 integer, 1 float, 3 text
  std::uint64_t bits = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> properties;  // properties of integers and floats

  bool operator==(const Stored&) const = default;
};

constexpr unsigned kInteger = 0, kFloat = 1, kText = 3;

Stored integer(std::uint64_t bytes, bool with_sign) {
  return {.kind = kInteger, .bits = with_sign ? 8U : 0U, .bytes = bytes, .properties = {0, 8 * bytes}};
}

// Little-endian, sign in the highest bit, mantissa without its leading bit.
Stored real(std::uint64_t bytes, std::uint64_t exponent_bits, std::uint64_t bias) {
  const std::uint64_t mantissa = 8 * bytes - exponent_bits - 1;
  return {.kind = kFloat,
          .bits = 0x20U | (8 * bytes - 1) << 8U,
          .bytes = bytes,
          .properties = {0, 8 * bytes, mantissa, exponent_bits, 0, mantissa, bias}};
}

std::optional<DType> dtype_of(const Stored& type) {
  using dtype::DType;
  const std::array<std::pair<DType, Stored>, 9> known = {{{DType::f32, real(4, 8, 127)},
                                                          {DType::bf16, real(2, 8, 127)},
                                                          {DType::f64, real(8, 11, 1023)},
                                                          {DType::u8, integer(1, false)},
                                                          {DType::u16, integer(2, false)},
                                                          {DType::u32, integer(4, false)},
                                                          {DType::u64, integer(8, false)},
                                                          {DType::i32, integer(4, true)},
                                                          {DType::i64, integer(8, true)}}};
  const auto at = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.second == type; });
  return at == known.end() ? std::nullopt : std::optional(at->first);
}

// Checks the superblock: version 2 or 3, no extension, and the length of the file.
void check_superblock(const File& file) {
  constexpr std::array<unsigned char, 8> kSignature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  std::array<std::byte, 48> block{};  // signature, version and sizes, base, extension, end, root
  const std::uint64_t size = file.size();
  if (size >= kUserBlockBytes + block.size()) file.pread_exact(block, kUserBlockBytes);
  if (std::memcmp(block.data(), kSignature.data(), kSignature.size()) != 0)
    throw Error(file.path() + ": not an HDF5 file");
  const Location place{file.path(), ""};
  Cursor at(block, place);
  at.take(kSignature.size());
  const std::uint64_t version = at.number(1), offset_bytes = at.number(1), length_bytes = at.number(1);
  if ((version != 2 && version != 3) || offset_bytes != 8 || length_bytes != 8)
    throw Error(file.path() + ": its HDF5 superblock is not of version 2 or 3");
  at.take(1);  // flags
  const std::uint64_t base = at.number(8), extension = at.number(8), end = at.number(8);
  if (base != kUserBlockBytes || extension != kNoAddress || end != size)
    throw Error(file.path() + ": damaged: its HDF5 superblock does not fit the file");
}

// The dtype of an entry: from its attribute `dtype`, which must match the stored type; without it the stored type.
DType named_dtype(DType stored, const Entry& entry, const std::string& path) {
  const auto attribute = entry.attributes.find("dtype");
  if (attribute == entry.attributes.end()) return stored;
  const auto* text = std::get_if<std::string>(&attribute->second);
  const auto named = text != nullptr ? dtype::parse_dtype(*text) : std::nullopt;
  if (!named) throw Error(message(path, entry.name, "attribute dtype names no known type"));
  const bool bits = (stored == DType::u16 || stored == DType::u32 || stored == DType::u64) &&
                    dtype::size_of(stored) == dtype::size_of(*named);  // floats kept as their bits
  const bool codes = is_coded(*named) || *named == DType::e8m0;
  if (!bits && stored != (codes ? DType::u8 : *named))
    throw Error(message(path, entry.name, "attribute dtype does not fit the stored type"));
  return *named;
}

// Sorts the entries by name; throws if two share bytes.
void finish(Contents& contents, const std::string& path) {
  auto& entries = contents.entries;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;
  for (const Entry& e : entries) {
    if (e.bytes == 0) continue;
    if (e.offset < end) throw Error(message(path, e.name, "shares bytes with another dataset"));
    end = e.offset + e.bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
}

// The extents of a dataspace; nothing for a null dataspace.
using Extents = std::optional<std::vector<std::uint64_t>>;

class Walker {
 public:
  explicit Walker(const File& file) : file_(file), file_bytes_(file.size()) {}

  Contents run() {
    const std::vector<std::byte> super = file_.block(0, 48, "\x89HDF\r\n\x1a\n");
    Cursor at(super, file_.place);
    at.take(36);
    object(at.number(8), "", 0);
    finish(out_, file_.place.path);
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { file_.place.fail(reason); }

  void object(std::uint64_t address, const std::string& name, std::size_t depth) {
    file_.place.name = name;
    if (depth > kMaxDepth) fail("groups nest deeper than " + std::to_string(kMaxDepth));
    if (!seen_.insert(address).second) fail("linked more than once");
    if (seen_.size() > kMaxObjects) fail("more than " + std::to_string(kMaxObjects) + " objects in the file");
    std::vector<Link> links;
    {
      const ObjectHeader header = read_object_header(file_, address);
      check_messages(header);
      const bool stores = header.find(kLayout) != nullptr && header.find(kDataspace) != nullptr;
      if (stores && header.find(kDatatype) != nullptr) return dataset(header, name);
      if (stores || header.find(kLinkInfo) == nullptr) fail("neither a group nor a dataset");
      out_.groups.emplace(name, attributes(header));
      links = links_of(header);
    }
    for (const Link& link : links) {
      if (valid_name(link.name)) continue;
      fail("holds a name that is not allowed: " + terminal_safe(link.name));
    }
    for (const Link& link : links) {
      const std::string member = name.empty() ? link.name : name + "/" + link.name;
      file_.place.name = member;
      if (!link.hard) fail("soft and external links are not allowed");
      object(link.address, member, depth + 1);
    }
  }

  void check_messages(const ObjectHeader& header) const {
    for (const Message& m : header.messages) {
      if (m.type == kSymbolTable) fail("a group without checksums");
      if (m.type == kExternal) fail("external storage is not allowed");
      if (m.type == kFilters) fail("only contiguous layout is allowed (no chunks, filters or virtual datasets)");
      if (m.type == kReferences) fail("linked more than once");
      constexpr std::array kAllowed = {kDataspace, kLinkInfo,  kDatatype,  kFillValue,    kLink,
                                       kLayout,    kGroupInfo, kAttribute, kAttributeInfo};
      if (std::find(kAllowed.begin(), kAllowed.end(), m.type) == kAllowed.end())
        fail("holds a part of a kind that is not allowed (" + std::to_string(m.type) + ")");
      if (m.shared) fail(m.type == kDatatype ? "its type is not allowed" : "shares parts, which is not allowed");
    }
  }

  Cursor cursor(std::span<const std::byte> bytes) const { return {bytes, file_.place}; }

  // Links in the header, or in a heap if there are many; sorted by name.
  std::vector<Link> links_of(const ObjectHeader& header) {
    std::vector<Link> links;
    for (const Message& m : header.messages)
      if (m.type == kLink) links.push_back(link_of(m.body));
    Cursor info = cursor(header.find(kLinkInfo)->body);
    const std::uint64_t version = info.number(1), flags = info.number(1);
    if (version != 0) fail("damaged: its links cannot be read");
    if ((flags & 1U) != 0) info.take(8);
    const std::uint64_t heap = info.number(8), tree = info.number(8);
    if (heap != kNoAddress) {
      const DenseObjects dense = read_dense(file_, heap, tree, 5, kMaxObjects);
      for (const auto& body : dense.objects) links.push_back(link_of(body));
    }
    std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) { return a.name < b.name; });
    const auto twice =
        std::adjacent_find(links.begin(), links.end(), [](const Link& a, const Link& b) { return a.name == b.name; });
    if (twice != links.end()) fail("holds a name twice: " + terminal_safe(twice->name));
    return links;
  }

  Link link_of(std::span<const std::byte> body) const {
    Cursor at = cursor(body);
    if (at.number(1) != 1) fail("damaged: its links cannot be read");
    const std::uint64_t flags = at.number(1);
    Link link;
    link.hard = (flags & 8U) == 0 || at.number(1) == 0;
    if ((flags & 4U) != 0) at.take(8);   // order of creation
    if ((flags & 16U) != 0) at.take(1);  // character set
    const auto name = at.take(at.number(std::size_t{1} << (flags & 3U)));
    link.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    if (link.hard) link.address = at.number(8);
    return link;
  }

  void dataset(const ObjectHeader& header, const std::string& name) {
    const auto [address, stored] = layout_of(header.find(kLayout)->body);
    Entry entry;
    entry.name = name;
    entry.attributes = attributes(header);
    const std::optional<DType> type = dtype_of(type_of(header.find(kDatatype)->body));
    if (!type) fail("its type is not allowed");
    entry.dtype = named_dtype(*type, entry, file_.place.path);
    const Extents extents = extents_of(header.find(kDataspace)->body);
    if (!extents) fail("its dataspace is null");
    const std::string here = message(file_.place.path, name, "");
    for (const std::uint64_t extent : *extents)
      entry.shape.push_back(checked_cast<std::int64_t>(extent, here + "extent"));
    const auto elements = static_cast<std::uint64_t>(checked_product(entry.shape, here + "shape"));
    entry.bytes = checked_mul(elements, std::uint64_t{dtype::size_of(entry.dtype)}, here + "size");
    if (entry.bytes > 0) {
      if (stored < entry.bytes || address == kNoAddress) fail("declares more bytes than it stores");
      const std::uint64_t inside = file_bytes_ - kUserBlockBytes;
      if (address > inside || entry.bytes > inside - address) fail("its data is outside the file");
      entry.offset = kUserBlockBytes + address;
    }
    out_.entries.push_back(std::move(entry));
  }

  // Address and size of contiguous storage.
  std::pair<std::uint64_t, std::uint64_t> layout_of(std::span<const std::byte> body) const {
    Cursor at = cursor(body);
    const std::uint64_t version = at.number(1), kind = at.number(1);
    if ((version != 3 && version != 4) || kind != 1)
      fail("only contiguous layout is allowed (no chunks, filters or virtual datasets)");
    const std::uint64_t address = at.number(8);
    return {address, at.number(8)};
  }

  Extents extents_of(std::span<const std::byte> body) const {
    Cursor at = cursor(body);
    if (at.number(1) != 2) fail("damaged: its shape cannot be read");
    const std::uint64_t rank = at.number(1);
    at.take(1);
    const std::uint64_t kind = at.number(1);  // scalar, simple, null
    if (rank > kMaxRank) fail("has more than " + std::to_string(kMaxRank) + " dimensions");
    if (kind > 1) return std::nullopt;
    if ((kind == 0) != (rank == 0)) fail("damaged: its shape cannot be read");
    std::vector<std::uint64_t> extents;
    for (std::uint64_t i = 0; i < rank; ++i) extents.push_back(at.number(8));
    return extents;
  }

  Stored type_of(std::span<const std::byte> body) const {
    Cursor at = cursor(body);
    const std::uint64_t first = at.number(1);
    Stored type{
        .kind = static_cast<unsigned>(first & 0x0fU), .bits = at.number(3), .bytes = at.number(4), .properties = {}};
    if (first >> 4U < 1 || first >> 4U > 3) fail("damaged: its type cannot be read");
    if (type.kind == kInteger) type.properties = numbers(at, {2, 2});
    if (type.kind == kFloat) type.properties = numbers(at, {2, 2, 1, 1, 1, 1, 4});
    // The order is that of real(): offset, precision, position and width of the exponent, of the mantissa, bias.
    return type;
  }

  static std::vector<std::uint64_t> numbers(Cursor& at, std::initializer_list<std::size_t> widths) {
    std::vector<std::uint64_t> values;
    for (const std::size_t width : widths) values.push_back(at.number(width));
    return values;
  }

  // Attributes in the header, or in a heap if there are many.
  Attributes attributes(const ObjectHeader& header) {
    Attributes result;
    for (const Message& m : header.messages)
      if (m.type == kAttribute) attribute(m.body, result);
    const Message* found = header.find(kAttributeInfo);
    if (found == nullptr) return result;
    Cursor info = cursor(found->body);
    const std::uint64_t version = info.number(1), flags = info.number(1);
    if (version != 0) fail("damaged: its attributes cannot be read");
    if ((flags & 1U) != 0) info.take(2);
    const std::uint64_t heap = info.number(8), tree = info.number(8);
    if (heap == kNoAddress) return result;
    const DenseObjects dense = read_dense(file_, heap, tree, 8, kMaxAttributes);
    for (const auto& body : dense.objects) attribute(body, result);
    return result;
  }

  void attribute(std::span<const std::byte> body, Attributes& result) const {
    Cursor at = cursor(body);
    if (at.number(1) != 3) fail("damaged: its attributes cannot be read");
    const std::uint64_t flags = at.number(1), name = at.number(2), type = at.number(2), space = at.number(2);
    at.take(1);  // character set of the name
    const auto text = at.take(name);
    std::string key(reinterpret_cast<const char*>(text.data()), text.size());
    if (key.empty() || key.back() != '\0') fail("an attribute's name is not allowed");
    key.pop_back();
    if (!valid_name(key)) fail("an attribute's name is not allowed");
    if (flags != 0) fail("attribute " + key + ": its type is not allowed");
    const Stored stored = type_of(at.take(type));
    const Extents extents = extents_of(at.take(space));
    if (!result.emplace(key, value(key, stored, extents, at)).second) fail("attribute " + key + " is there twice");
    if (result.size() > kMaxAttributes) fail("has more than " + std::to_string(kMaxAttributes) + " attributes");
  }

  AttributeValue value(const std::string& key, const Stored& type, const Extents& extents, Cursor& data) const {
    const auto refuse = [&](const std::string& reason) { fail("attribute " + key + ": " + reason); };
    if (!extents || extents->size() > 1) refuse("its shape is not allowed");
    const bool vector = !extents->empty();
    const std::uint64_t count = vector ? extents->front() : 1;
    if (type.bytes == 0 || type.bytes > kMaxAttributeBytes || count > kMaxAttributeBytes / type.bytes)
      refuse("longer than " + std::to_string(kMaxAttributeBytes) + " bytes");
    if (type.kind == kText) {
      if (vector) refuse("arrays of text are not allowed");
      return text(key, type, data.take(type.bytes));
    }
    if (type == real(4, 8, 127) && !vector)
      return double{std::bit_cast<float>(static_cast<std::uint32_t>(data.number(4)))};
    if (type == real(8, 11, 1023) && !vector) return std::bit_cast<double>(data.number(8));
    const bool with_sign = (type.bits & 8U) != 0;
    if (type.bytes > 8 || type != integer(type.bytes, with_sign) || !std::has_single_bit(type.bytes) ||
        (type.bytes == 8 && !with_sign))
      refuse("its type is not allowed");
    std::vector<std::int64_t> values;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto unused = static_cast<unsigned>(64 - 8 * type.bytes);
      const std::uint64_t number = data.number(type.bytes) << unused;
      values.push_back(with_sign ? static_cast<std::int64_t>(number) >> unused
                                 : static_cast<std::int64_t>(number >> unused));
    }
    if (vector) return values;
    return values.front();
  }

  std::string text(const std::string& key, const Stored& type, std::span<const std::byte> bytes) const {
    std::string result(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    result.resize(std::min(result.find('\0'), result.size()));
    if ((type.bits & 15U) == 2) result.resize(result.find_last_not_of(' ') + 1);  // padded with spaces
    if (!valid_utf8(result)) fail("attribute " + key + " is not UTF-8");
    return result;
  }

  Metadata file_;
  std::uint64_t file_bytes_;
  std::set<std::uint64_t> seen_;
  Contents out_;
};

}  // namespace

Contents walk(const File& file) {
  check_superblock(file);
  return Walker(file).run();
}

}  // namespace fp8::h5
