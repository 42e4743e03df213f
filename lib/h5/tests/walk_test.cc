// Files with a user block are read without HDF5: the result equals what HDF5 finds in the same file, for any number of
// names and attributes, and damage to any part is an error.
#include "fixture.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/user_block.h"
#include "fp8/h5/writer.h"
#include "metadata.h"
#include "plain_file.h"

namespace fp8::h5 {
namespace {

class Walk : public FolderTest {
 protected:
  // Writes `groups` of `datasets` each with `attributes` of all kinds.
  void write_many(int groups, int datasets, int attributes) {
    Writer writer(at("x.h5"), kCheckpointMagic);
    Attributes some;
    for (int i = 0; i < attributes; ++i) {
      const std::string key = "a" + std::to_string(i);
      const std::array<AttributeValue, 5> values = {std::string(static_cast<std::size_t>(i % 50), 'x'),
                                                    std::int64_t{-i}, i / 8.0, std::vector<std::int64_t>{i, -i, 1},
                                                    std::string("\u00fc")};
      some.emplace(key, values.at(static_cast<std::size_t>(i) % values.size()));
    }
    constexpr std::array kTypes = {DType::f32, DType::bf16, DType::e4m3, DType::u64, DType::f64, DType::i32};
    for (int g = 0; g < groups; ++g) {
      const std::string group = "group" + std::to_string(g);
      for (const auto& [key, value] : some) writer.attribute(group, key, value);
      for (int d = 0; d < datasets; ++d) {
        const DType type = kTypes.at(static_cast<std::size_t>(d) % kTypes.size());
        const std::vector<std::int64_t> shape(static_cast<std::size_t>(d % 5), d % 7 == 6 ? 0 : 2);
        const std::size_t elements = shape.empty() ? 1 : shape[0] == 0 ? 0 : std::size_t{1} << shape.size();
        const std::vector<std::byte> bytes(elements * dtype::size_of(type), static_cast<std::byte>(d));
        writer.dataset(group + "/part/dataset." + std::to_string(d), type, shape, bytes, some);
      }
    }
    writer.finish();
  }
  // Reads the file both ways.
  void compare() {
    const Reader ours(at("x.h5"), kCheckpointMagic);
    const test::PlainFile theirs(at("x.h5"));
    for (const std::string& group : theirs.groups()) EXPECT_EQ(ours.group(group), theirs.group(group)) << group;
    ASSERT_EQ(ours.list().size(), theirs.list().size());
    for (std::size_t i = 0; i < ours.list().size(); ++i) {
      const Entry &a = ours.list()[i], &b = theirs.list()[i];
      EXPECT_EQ(a.name, b.name);
      EXPECT_TRUE(a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes && a.offset == b.offset) << a.name;
      EXPECT_EQ(a.attributes, b.attributes) << a.name;
    }
  }
};

TEST_F(Walk, finds_what_hdf5_finds) {
  for (const auto& [groups, datasets, attributes] :
       {std::array{0, 0, 0}, {1, 1, 3}, {9, 9, 6}, {2, 50, 9}, {1, 300, 0}, {3, 5, 60}}) {
    SCOPED_TRACE(std::to_string(groups) + " groups of " + std::to_string(datasets));
    write_many(groups, datasets, attributes);
    compare();
  }
}

TEST_F(Walk, finds_more_names_than_the_direct_blocks_of_a_heap_hold) {
  Writer writer(at("x.h5"), kCheckpointMagic);
  for (int i = 0; i < 2300; ++i)  // a tree of three levels
    writer.attribute(std::to_string(i) + std::string(240, 'n'), "a", std::int64_t{i});
  writer.finish();
  compare();
}

TEST_F(Walk, checksums_are_those_of_hdf5) {
  // Texts of every length up to two rounds. The checksums of files are compared whenever one is read.
  const auto of = [](std::string_view text) { return metadata_checksum(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of(""), 0xdeadbeefU);
  EXPECT_EQ(of("Four score and seven years ago"), 0x17770551U);  // from the author's own tests
}

// A file may be sparse, so its size does not bound allocations.
TEST_F(Walk, a_header_of_half_a_terabyte_is_refused_before_allocation) {
  write_many(0, 0, 0);
  constexpr std::uint64_t kSize = std::uint64_t{1} << 40U;
  std::string raw = read_file(at("x.h5"));
  const auto put = [&](std::size_t at, std::uint64_t value, int width) {
    for (int i = 0; i < width; ++i) raw.at(at + static_cast<std::size_t>(i)) = static_cast<char>(value >> (8 * i));
  };
  const std::size_t header = raw.find("OHDR"), super = kUserBlockBytes;
  put(header + 5, 3, 1);  // a length of 8 bytes follows
  put(header + 6, kSize / 2, 8);
  put(super + 28, kSize, 8);
  put(super + 44, metadata_checksum(std::as_bytes(std::span(raw)).subspan(super, 44)), 4);
  write_file(at("x.h5"), format_user_block(kCheckpointMagic, {kSize, std::string(32, '0')}) + raw.substr(super));
  std::filesystem::resize_file(at("x.h5"), kSize);
  EXPECT_HOLDS(error_of([&] { Reader r(at("x.h5"), kCheckpointMagic); }), "x.h5: a metadata block is larger than");
}

TEST_F(Walk, every_flipped_bit_of_the_metadata_of_large_groups_is_an_error_on_opening) {
  write_many(1, 12, 12);
  std::string raw = read_file(at("x.h5"));
  const Reader good(at("x.h5"), kCheckpointMagic);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> data;
  for (const Entry& e : good.list()) data.emplace_back(e.offset, e.offset + e.bytes);
  std::size_t refused = 0, flipped = 0;
  for (std::size_t i = kUserBlockBytes; i < raw.size(); i += 67) {
    if (std::any_of(data.begin(), data.end(), [&](const auto& d) { return i >= d.first && i < d.second; })) continue;
    raw[i] = static_cast<char>(raw[i] ^ 16);
    write_file(at("x.h5"), raw);
    const std::string message = error_of([&] { Reader r(at("x.h5"), kCheckpointMagic); });
    if (message != "no error") ++refused;
    ++flipped;
    raw[i] = static_cast<char>(raw[i] ^ 16);
  }
  // The other bits are slack: blocks of heaps and trees have unused space.
  EXPECT_GT(refused * 2, flipped);
}

}  // namespace
}  // namespace fp8::h5
