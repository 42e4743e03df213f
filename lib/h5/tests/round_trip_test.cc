// The reader returns what was written; equal content gives equal bytes; damage is found and named.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>

#include "digests.h"
#include "fixture.h"
#include "fp8/base/digest.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/user_block.h"
#include "fp8/h5/writer.h"

namespace fp8::h5 {
namespace {

using RoundTrip = FolderTest;
using Shape = std::vector<std::int64_t>;

std::vector<float> ramp(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

void write_sample(const std::string& path, std::string_view magic = kCheckpointMagic) {
  Writer w(path, magic);
  w.attribute("", "format", std::string(magic));
  w.attribute("", "version", std::int64_t{1});
  w.text("config", "{\"a\":1}");
  const auto f = ramp(12);
  w.begin_dataset("weights/a.weight", DType::f32, Shape{4, 3},
                  {{"precision", std::string("fp8")}, {"offset", Shape{0, 0}}, {"x", 0.5}});
  w.write(bytes_of(f).first(5));
  w.write(bytes_of(f).subspan(5));
  w.end_dataset();
  w.dataset("weights/b.weight", DType::bf16, Shape{2}, bytes_of(std::vector<std::uint16_t>{0x3F80, 0xC000}));
  w.dataset("codes/e4m3", DType::e4m3, Shape{1, 2, 2}, bytes_of(std::vector<std::uint8_t>{0x78, 0x7E, 0x7F, 0}));
  w.dataset("empty", DType::i64, Shape{0, 8}, {}, {{"note", std::string()}, {"none", Shape{}}});
  w.dataset("scalar", DType::f64, Shape{}, bytes_of(std::vector<double>{2.5}));
  w.dataset("count", DType::u64, Shape{2}, bytes_of(std::vector<std::uint64_t>{0, 7}));
  w.finish();
}

TEST_F(RoundTrip, values_shapes_and_attributes) {
  write_sample(at("a.h5"));
  const Reader r(at("a.h5"), kCheckpointMagic);
  ASSERT_EQ(r.list().size(), 7U);
  EXPECT_EQ(r.list().front().name, "codes/e4m3");
  EXPECT_EQ(std::get<std::string>(r.group("/").at("format")), "fp8-checkpoint");
  EXPECT_EQ(std::get<std::int64_t>(r.group("").at("version")), 1);
  EXPECT_EQ(r.read_text("config"), "{\"a\":1}");
  const Entry& a = r.at("/weights/a.weight");
  EXPECT_EQ(a.dtype, DType::f32);
  EXPECT_EQ(a.shape, (Shape{4, 3}));
  EXPECT_EQ(a.row_bytes(), 12U);
  EXPECT_EQ(std::get<std::string>(a.attributes.at("precision")), "fp8");
  EXPECT_EQ(std::get<Shape>(a.attributes.at("offset")), (Shape{0, 0}));
  EXPECT_EQ(std::get<double>(a.attributes.at("x")), 0.5);
  EXPECT_EQ(r.read_as<float>("weights/a.weight"), ramp(12));
  EXPECT_EQ(r.at("weights/b.weight").dtype, DType::bf16);
  EXPECT_EQ(r.read_as<std::uint16_t>("weights/b.weight"), (std::vector<std::uint16_t>{0x3F80, 0xC000}));
  EXPECT_EQ(r.at("codes/e4m3").dtype, DType::e4m3);
  EXPECT_EQ(r.read_as<std::uint8_t>("codes/e4m3"), (std::vector<std::uint8_t>{0x78, 0x7E, 0x7F, 0}));
  EXPECT_EQ(r.at("empty").bytes, 0U);
  EXPECT_EQ(std::get<std::string>(r.at("empty").attributes.at("note")), "");
  EXPECT_EQ(std::get<Shape>(r.at("empty").attributes.at("none")), Shape{});
  EXPECT_EQ(r.at("scalar").rows(), 1);
  EXPECT_EQ(r.read_as<double>("scalar"), std::vector<double>{2.5});
  EXPECT_EQ(r.find("weights"), nullptr);
  verify_file(Reader(at("a.h5"), kCheckpointMagic));
}

TEST_F(RoundTrip, rows_and_offsets) {
  write_sample(at("a.h5"));
  const Reader r(at("a.h5"), kCheckpointMagic);
  std::vector<float> rows(6);
  r.read_rows("weights/a.weight", 1, 3, std::as_writable_bytes(std::span(rows)));
  EXPECT_EQ(rows, (std::vector<float>{3, 4, 5, 6, 7, 8}));
  const std::uint64_t offset = r.at("weights/a.weight").offset;
  EXPECT_EQ(offset % 64, 0U);
  const std::string raw = read_file(at("a.h5"));
  EXPECT_EQ(raw.substr(offset, 48), std::string(reinterpret_cast<const char*>(ramp(12).data()), 48));
  EXPECT_HOLDS(error_of([&] { r.read_rows("weights/a.weight", 3, 5, {}); }), "/weights/a.weight: has no rows 3 to 5");
  EXPECT_HOLDS(error_of([&] { r.read("nothing", {}); }), "/nothing: there is no such dataset");
  EXPECT_HOLDS(error_of([&] { r.read_as<double>("weights/a.weight"); }), "do not have 8 bytes");
}

TEST_F(RoundTrip, equal_content_is_equal_bytes) {
  write_sample(at("a.h5"));
  write_sample(at("b.h5"));
  EXPECT_EQ(read_file(at("a.h5")), read_file(at("b.h5")));
}

TEST_F(RoundTrip, any_piece_size_gives_the_same_bytes) {
  const auto f = ramp((std::size_t{17} << 18) + 5);  // above 16 MiB
  const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(f.size())};
  Writer whole(at("whole.h5"), kCheckpointMagic), split(at("split.h5"), kCheckpointMagic);
  whole.dataset("a", DType::f32, shape, bytes_of(f));
  whole.finish();
  split.begin_dataset("a", DType::f32, shape);
  split.write(bytes_of(f).first(3));
  split.write(bytes_of(f).subspan(3));
  split.end_dataset();
  split.finish();
  EXPECT_TRUE(read_file(at("whole.h5")) == read_file(at("split.h5")));
  EXPECT_EQ(Reader(at("split.h5"), kCheckpointMagic).read_as<float>("a"), f);
}

TEST_F(RoundTrip, several_threads_at_once) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 5; ++i) {
        const std::string path = at(std::to_string(t) + "." + std::to_string(i) + ".h5");
        write_sample(path);
        EXPECT_EQ(Reader(path, kCheckpointMagic).read_text("config"), "{\"a\":1}");
        verify_file(Reader(path, kCheckpointMagic));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(read_file(at("1.4.h5")) == read_file(at("2.0.h5")));
}

TEST_F(RoundTrip, an_existing_file_is_replaced_from_its_first_byte) {
  write_file(at("a.h5"), std::string(100000, 'x'));
  write_sample(at("a.h5"));
  write_sample(at("b.h5"));
  EXPECT_EQ(read_file(at("a.h5")), read_file(at("b.h5")));
}

TEST_F(RoundTrip, many_datasets) {
  Writer w(at("a.h5"), kCheckpointMagic);
  for (int i = 0; i < 500; ++i)
    w.dataset("weights/t" + std::to_string(i), DType::u8, Shape{3},
              bytes_of(std::vector<std::uint8_t>(3, static_cast<std::uint8_t>(i))));
  w.finish();
  verify_file(Reader(at("a.h5"), kCheckpointMagic));
  const Reader r(at("a.h5"), kCheckpointMagic);
  ASSERT_EQ(r.list().size(), 500U);
  EXPECT_EQ(r.read_as<std::uint8_t>("weights/t300"), std::vector<std::uint8_t>(3, 300 - 256));
}

TEST_F(RoundTrip, user_block_states_length_and_digest) {
  write_sample(at("a.h5"), kTokensMagic);
  const std::string raw = read_file(at("a.h5"));
  const std::string digest = digest_of(std::as_bytes(std::span(raw)).subspan(512)).hex();
  std::string expected = "fp8-tokens 1 " + std::to_string(raw.size()) + " " + digest + "\n";
  expected.resize(512, '\0');
  EXPECT_EQ(raw.substr(0, 512), expected);
  verify_file(Reader(at("a.h5"), kTokensMagic));
  EXPECT_EQ(Reader(at("a.h5"), kTokensMagic).stated_digest(), digest);
  EXPECT_HOLDS(error_of([&] { Reader(at("a.h5"), kCheckpointMagic); }), "does not begin with fp8-checkpoint");
}

// If the disk returns other bytes than were written, the file gets no valid user block.
TEST_F(RoundTrip, changes_before_reading_back_are_found) {
  const auto damaged_at = [&](std::size_t byte) {
    const std::string path = at(std::to_string(byte) + ".h5");
    Writer w(path, kCheckpointMagic);
    w.dataset("weights/a", DType::u8, Shape{3000}, bytes_of(std::vector<char>(3000, 'a')));
    w.sync();
    std::string bytes = read_file(path);
    const std::size_t data = bytes.find(std::string(3000, 'a'));
    if (byte > 0) {
      bytes[byte == 1 ? data + 2999 : byte] ^= 1;
      write_file(path, bytes);
    }
    const std::string error = error_of([&] { w.finish(); });
    if (error != "no error") {
      EXPECT_HOLDS(error_of([&] { w.finish(); }), "not written after an earlier error");
    } else {
      EXPECT_HOLDS(error_of([&] { w.finish(); }), "already finished");
    }
    return error;
  };
  EXPECT_EQ(damaged_at(0), "no error");
  EXPECT_HOLDS(damaged_at(1), "1.h5: /weights/a: damaged: its bytes differ from its digest");
  EXPECT_HOLDS(damaged_at(520), "520.h5: reads back differently than written");
}

TEST_F(RoundTrip, a_file_cut_short_under_its_digests_is_an_error_at_once) {
  ::alarm(60);  // ends an endless loop
  write_sample(at("whole.h5"));
  const std::uint64_t whole = std::filesystem::file_size(at("whole.h5"));
  for (const std::uint64_t size :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{512}, std::uint64_t{600}, whole - 1}) {
    const std::string path = at(std::to_string(size) + ".h5");
    Writer w(path, kCheckpointMagic);
    w.dataset("weights/a", DType::u8, Shape{3000}, bytes_of(std::vector<char>(3000, 'a')));
    w.sync();
    std::filesystem::resize_file(path, std::min(size, std::filesystem::file_size(path) - 1));
    EXPECT_HOLDS(error_of([&] { w.finish(); }), path + ": ") << size;
  }
  const File file = File::open_read(at("whole.h5"));
  EXPECT_HOLDS(error_of([&] { check_digests(file, {}, whole + 1); }), "whole.h5: ends 1 bytes too early");
  EXPECT_HOLDS(error_of([&] {
                 check_digests(file, {{"a", 1000, 10, ""}}, 0);
               }),
               "whole.h5: cut short: 0 bytes of 1000");
  EXPECT_HOLDS(error_of([&] { check_digests(file, {{"a", 600, whole, ""}}, whole); }), "whole.h5: cut short: ");
  ::alarm(0);
}

TEST_F(RoundTrip, every_flipped_bit_is_found) {
  write_sample(at("a.h5"));
  const std::string good = read_file(at("a.h5"));
  const std::string path = at("bad.h5");
  for (std::size_t i = 0; i < good.size(); i += i < 100 ? 1 : 13) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    write_file(path, bad);
    EXPECT_NE(error_of([&] { verify_file(Reader(path, kCheckpointMagic)); }), "no error") << "byte " << i;
  }
}

TEST_F(RoundTrip, the_damaged_dataset_is_named) {
  write_sample(at("a.h5"));
  std::string bad = read_file(at("a.h5"));
  bad[Reader(at("a.h5"), kCheckpointMagic).at("weights/b.weight").offset] ^= 1;
  write_file(at("bad.h5"), bad);
  EXPECT_HOLDS(error_of([&] { verify_file(Reader(at("bad.h5"), kCheckpointMagic)); }),
               "bad.h5: /weights/b.weight: damaged");
}

TEST_F(RoundTrip, a_text_is_read_by_its_digest_and_limit) {
  write_sample(at("a.h5"));
  std::string bad = read_file(at("a.h5"));
  bad[Reader(at("a.h5"), kCheckpointMagic).at("config").offset] ^= 1;
  write_file(at("bad.h5"), bad);
  const Reader r(at("bad.h5"), kCheckpointMagic);
  EXPECT_EQ(error_of([&] { r.read_text("config"); }),
            at("bad.h5") + ": /config: damaged: its bytes differ from its digest");
  EXPECT_HOLDS(error_of([&] { r.read_text("config", 6); }), "/config: larger than 6 bytes");
  EXPECT_HOLDS(error_of([&] { r.read_text("weights/b.weight"); }), "/weights/b.weight: is not text");
}

TEST_F(RoundTrip, verifying_copies_bytes_to_the_destination) {
  write_sample(at("a.h5"));
  const Reader r(at("a.h5"), kCheckpointMagic);
  std::map<std::string, std::vector<std::byte>> left;
  verify_file(Reader(at("a.h5"), kCheckpointMagic), [&](const Entry& e) {
    if (e.name == "weights/b.weight") return std::span<std::byte>();
    return std::span(left[e.name] = std::vector<std::byte>(e.bytes));
  });
  EXPECT_GT(left.size(), 1U);
  for (const auto& [name, bytes] : left) {
    std::vector<std::byte> read(bytes.size());
    r.read(name, read);
    EXPECT_TRUE(bytes == read) << name;
  }
  std::array<std::byte, 1> small{};
  EXPECT_HOLDS(error_of([&] {
                 verify_file(Reader(at("a.h5"), kCheckpointMagic), [&](const Entry&) { return std::span(small); });
               }),
               "buffer size differs from its size");
}

TEST_F(RoundTrip, other_lengths_are_found) {
  write_sample(at("a.h5"));
  const std::string good = read_file(at("a.h5"));
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{511}, std::size_t{512}, std::size_t{600},
                                 good.size() / 2, good.size() - 1}) {
    write_file(at("bad.h5"), good.substr(0, size));
    EXPECT_HOLDS(error_of([&] { Reader(at("bad.h5"), kCheckpointMagic); }), "truncated") << size;
  }
  write_file(at("bad.h5"), good + "x");
  EXPECT_HOLDS(error_of([&] { Reader(at("bad.h5"), kCheckpointMagic); }), "damaged: 1 bytes after its end");
}

TEST_F(RoundTrip, later_versions_are_refused_by_number) {
  write_sample(at("a.h5"));
  std::string raw = read_file(at("a.h5"));
  raw.replace(raw.find(" 1 "), 3, " 2 ");
  write_file(at("a.h5"), raw);
  EXPECT_HOLDS(error_of([&] { Reader(at("a.h5"), kCheckpointMagic); }), "version 2 of the file format is not known");
}

TEST_F(RoundTrip, misuse_of_the_writer_is_an_error) {
  EXPECT_HOLDS(error_of([&] {
                 Writer w(at("a.h5"), kCheckpointMagic);
                 w.begin_dataset("a", DType::f32, Shape{2});
                 w.end_dataset();
               }),
               "/a: ended after 0 of 8 bytes");
  EXPECT_HOLDS(error_of([&] {
                 Writer(at("b.h5"), kCheckpointMagic).dataset("a", DType::u8, Shape{1}, bytes_of(std::vector<char>(2)));
               }),
               "more bytes");
  EXPECT_HOLDS(error_of([&] { Writer(at("c.h5"), kCheckpointMagic).text("a/../b", ""); }), "name not allowed");
  EXPECT_HOLDS(error_of([&] {
                 Writer w(at("d.h5"), kCheckpointMagic);
                 w.text("a", "x");
                 w.text("a", "y");
               }),
               "/a: HDF5 cannot create a dataset");
  EXPECT_HOLDS(error_of([&] { Writer(at("no/such/folder.h5"), kCheckpointMagic); }),
               "no/such/folder.h5: No such file or directory");
}

// Limits the file size during its lifetime: writes beyond fail, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST_F(RoundTrip, a_write_that_fails_anywhere_is_an_error_and_the_next_file_is_good) {
  write_sample(at("good.h5"));
  const std::size_t size = read_file(at("good.h5")).size();
  for (std::size_t limit = 0; limit < size; limit += size / 8) {
    const FileSizeLimit full(limit);
    EXPECT_NE(error_of([&] { write_sample(at("a.h5")); }), "no error") << limit;
    std::filesystem::remove(at("a.h5"));
  }
  write_sample(at("a.h5"));
  EXPECT_EQ(read_file(at("a.h5")), read_file(at("good.h5")));
}

TEST_F(RoundTrip, full_disk_is_an_error_at_the_write) {
  EXPECT_NE(error_of([] {
              Writer w("/dev/full", kCheckpointMagic);
              w.dataset("a", DType::u8, Shape{1000}, bytes_of(std::vector<char>(1000)));
              w.finish();
            }),
            "no error");
}

}  // namespace
}  // namespace fp8::h5
