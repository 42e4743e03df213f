// Blocks that are split in any dimension: written, verified, read by rows and merged; and every class of blocks that is
// not a tensor.
#include <ctime>
#include <random>

#include "divide.h"
#include "fixture.h"
#include "fp8/dtype/convert.h"
#include "manifest.h"

namespace fp8::ckpt {
namespace {

// A tensor and its block in each file that has one.
struct Divided {
  Sample sample;
  std::vector<std::pair<std::int64_t, Block>> blocks;
};

// Uneven blocks of 1 to 4 dimensions in five files: grids, a pinwheel, which no cut divides, a scalar, and a tensor
// without elements.
std::vector<Divided> divided() {
  return {{sample("weights/embed", DType::f32, {7, 4}),
           {{3, {{4, 2}, {3, 2}}}, {0, {{0, 0}, {4, 1}}}, {1, {{0, 1}, {4, 3}}}, {2, {{4, 0}, {3, 2}}}}},
          {sample("weights/pinwheel", DType::bf16, {5, 5}),
           {{0, {{0, 0}, {2, 3}}},
            {1, {{0, 3}, {3, 2}}},
            {2, {{3, 2}, {2, 3}}},
            {3, {{2, 0}, {3, 2}}},
            {4, {{2, 2}, {1, 1}}}}},
          {sample("weights/experts", DType::e4m3, {3, 4, 2}),
           {{0, {{0, 0, 0}, {2, 3, 1}}},
            {1, {{0, 0, 1}, {2, 3, 1}}},
            {2, {{0, 3, 0}, {2, 1, 2}}},
            {4, {{2, 0, 0}, {1, 4, 2}}}}},
          {sample("lora/four", DType::f32, {2, 3, 2, 3}),
           {{0, {{0, 0, 0, 0}, {2, 2, 2, 1}}},
            {3, {{0, 0, 0, 1}, {2, 2, 2, 2}}},
            {1, {{0, 2, 0, 0}, {1, 1, 2, 3}}},
            {2, {{1, 2, 0, 0}, {1, 1, 1, 3}}},
            {4, {{1, 2, 1, 0}, {1, 1, 1, 3}}}}},
          {sample("weights/rows", DType::f32, {5, 6}), {{1, {{0, 0}, {2, 6}}}, {3, {{2, 0}, {3, 6}}}}},
          {sample("weights/norm", DType::f32, {3}), {{4, {{0}, {3}}}}},
          {sample("step_scale", DType::f64, {}), {{3, {{}, {}}}}},
          {sample("weights/empty", DType::f32, {0, 4}), {{2, {{0, 0}, {0, 4}}}}}};
}

std::vector<FileEntry> write_shards(const std::string& temporary, const std::vector<Divided>& tensors,
                                    std::int64_t world = 5) {
  std::vector<FileEntry> entries;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    ShardWriter w(temporary, rank, world, FileKind::training);
    if (rank == 0) w.document("config", config());
    if (rank == 0) w.document("train", train_of(3));
    for (const Divided& t : tensors)
      for (const auto& [owner, block] : t.blocks)
        if (owner == rank) w.tensor(t.sample.meta, block, test::cut(t.sample.meta, block, t.sample.bytes));
    entries.push_back(w.finish());
  }
  return entries;
}

class Blocks : public FolderTest {
 protected:
  std::string write(const std::vector<Divided>& tensors, std::int64_t world = 5) const {
    const std::string temporary = begin_folder(at("a"));
    commit_folder(temporary, at("a"), FileKind::training, test::mesh_of(world),
                  write_shards(temporary, tensors, world));
    return at("a");
  }
};

void expect_rows(const Checkpoint& c, const Sample& s) {
  const std::int64_t rows = s.meta.rows();
  const std::uint64_t row = s.meta.row_bytes();
  for (std::int64_t begin = 0; begin <= rows; ++begin) {
    for (std::int64_t end = begin; end <= rows; ++end) {
      std::vector<std::byte> out(static_cast<std::uint64_t>(end - begin) * row);
      c.read_rows(s.meta.name, begin, end, out);
      EXPECT_TRUE(std::equal(out.begin(), out.end(),
                             s.bytes.begin() + static_cast<std::ptrdiff_t>(begin) * static_cast<std::ptrdiff_t>(row)))
          << s.meta.name << " " << begin << " to " << end;
    }
  }
}

TEST_F(Blocks, of_every_shape_read_back_whole_and_by_rows) {
  const Checkpoint c = Checkpoint::open(write(divided()));
  c.verify();
  EXPECT_EQ(c.version(), 2);
  EXPECT_EQ(c.mesh(), test::mesh_of(5));
  EXPECT_EQ(c.tensors().size(), divided().size() - 1) << "a tensor without elements is in no file";
  for (const Divided& t : divided()) {
    const Sample& s = t.sample;
    if (s.bytes.empty()) continue;
    EXPECT_EQ(c.at(s.meta.name), s.meta);
    expect_rows(c, s);
    std::vector<float> floats(s.bytes.size() / dtype::size_of(s.meta.dtype)), expected(floats.size());
    c.read_rows_as_f32(s.meta.name, 0, s.meta.rows(), floats);
    dtype::to_floats(s.meta.dtype, s.bytes.data(), expected);
    EXPECT_EQ(floats, expected) << s.meta.name;
  }
}

// Blocks whose runs are read in several pieces of 4 MiB, and runs longer than a piece.
TEST_F(Blocks, larger_than_a_piece) {
  const std::vector<Divided> tensors = {
      {sample("lora/narrow", DType::f64, {1501, 700}), {{0, {{0, 0}, {1501, 300}}}, {1, {{0, 300}, {1501, 400}}}}},
      {sample("lora/wide", DType::f64, {3, 1'250'001}),
       {{0, {{0, 0}, {3, 625'000}}}, {1, {{0, 625'000}, {3, 625'001}}}}}};
  const Checkpoint c = Checkpoint::open(write(tensors, 2));
  for (const Divided& t : tensors) {
    const Sample& s = t.sample;
    const std::uint64_t row = s.meta.row_bytes();
    std::vector<std::byte> whole(s.bytes.size()), inner(s.bytes.size() - 2 * row);
    c.read(s.meta.name, whole);
    EXPECT_TRUE(whole == s.bytes) << s.meta.name;
    c.read_rows(s.meta.name, 1, s.meta.rows() - 1, inner);
    EXPECT_TRUE(std::equal(inner.begin(), inner.end(), s.bytes.begin() + static_cast<std::ptrdiff_t>(row)))
        << s.meta.name;
  }
}

TEST_F(Blocks, are_handed_out_one_by_one_when_verified) {
  const Checkpoint c = Checkpoint::open(write(divided()));
  std::vector<std::tuple<std::string, Block, std::vector<std::byte>>> got;
  got.reserve(100);
  for (std::size_t i = 0; i < c.file_count(); ++i) {
    c.verify_file(i, [&](const TensorMeta& meta, const Block& block) {
      const auto bytes = static_cast<std::size_t>(block.elements()) * dtype::size_of(meta.dtype);
      got.emplace_back(meta.name, block, std::vector<std::byte>(bytes));
      return std::span(std::get<2>(got.back()));
    });
  }
  std::size_t expected = 0;
  for (const Divided& t : divided()) {
    if (t.sample.bytes.empty()) continue;
    for (const auto& [rank, block] : t.blocks) {
      ++expected;
      const std::tuple wanted{t.sample.meta.name, block, test::cut(t.sample.meta, block, t.sample.bytes)};
      EXPECT_EQ(std::count(got.begin(), got.end(), wanted), 1) << t.sample.meta.name << " of rank " << rank;
    }
  }
  EXPECT_EQ(got.size(), expected);
}

TEST_F(Blocks, merge_into_the_file_that_rows_merge_into) {
  const auto merge = [&](const std::string& from, const std::string& to) {
    const Checkpoint source = Checkpoint::open(from);
    ModelWriter w(to, source.kind(), false);
    w.document("config", source.config());
    w.document("train", source.train());
    for (const TensorMeta& meta : source.tensors()) copy_tensor(source, meta.name, w);
    w.commit();
    return read_file(to);
  };
  write_folder(at("rows"), 2);
  const std::string wanted = merge(at("rows"), at("rows.h5"));
  for (const std::int64_t ranks : {1, 4, 7, 8}) {
    const std::string folder = at("boxes" + std::to_string(ranks));
    test::divide(at("rows"), folder, ranks);
    expect_samples(Checkpoint::open(folder));
    EXPECT_TRUE(merge(folder, folder + ".h5") == wanted) << ranks;
  }
}

TEST_F(Blocks, of_a_tensor_are_checked_when_they_are_written) {
  const std::string temporary = begin_folder(at("a"));
  ShardWriter w(temporary, 0, 1, FileKind::training);
  const Sample s = sample("weights/w", DType::f32, {7, 4}), scalar = sample("s", DType::f32, {});
  const auto refused = [&](const Block& block) { return error_of([&] { w.begin_tensor(s.meta, block); }); };
  const std::string place = temporary + "/rank-00000-of-00001.h5: /weights/w: ";
  EXPECT_EQ(refused({{0}, {7}}),
            place + "offset and extent of a block have lengths 1 and 1, the shape of the tensor 2");
  EXPECT_EQ(refused({{4, 0}, {4, 4}}),
            place + "a block with offset 4 and extent 4 is outside dimension 0, which has 7");
  EXPECT_EQ(refused({{0, -1}, {7, 4}}),
            place + "a block with offset -1 and extent 4 is outside dimension 1, which has 4");
  EXPECT_EQ(refused({{0, 0}, {7, 0}}), place + "a block is empty");
  EXPECT_HOLDS(error_of([&] { (void)rows_block(scalar.meta, 0, 2); }), "s: a scalar has no rows 0 to 2");
  w.tensor(s.meta, {{3, 0}, {0, 4}}, {});  // empty
  w.tensor(scalar.meta, rows_block(scalar.meta, 0, 1), scalar.bytes);
  w.tensor(s.meta, whole_block(s.meta), s.bytes);
  EXPECT_EQ(w.finish().blocks.size(), 2U);
}

// The blocks in the manifest are changed in `change`, the files stay as they are.
class WrongBlocks : public Blocks {
 protected:
  std::string with(const std::function<void(std::vector<FileEntry>&)>& change) const {
    const std::string temporary = begin_folder(at("a"));
    std::vector<FileEntry> entries = write_shards(temporary, divided());
    change(entries);
    return error_of([&] { commit_folder(temporary, at("a"), FileKind::training, test::mesh_of(5), entries); });
  }
  // The block of `name` in the file of `rank`.
  static Block& block_of(std::vector<FileEntry>& entries, std::size_t rank, const std::string& name) {
    auto& blocks = entries.at(rank).blocks;
    return std::find_if(blocks.begin(), blocks.end(), [&](const TensorBlock& b) { return b.tensor.name == name; })
        ->block;
  }
  std::string with(std::size_t rank, const std::string& name, const Block& block) const {
    return with([&](auto& e) { block_of(e, rank, name) = block; });
  }
};

TEST_F(WrongBlocks, are_refused_with_the_first_wrong_element) {
  EXPECT_EQ(with([](auto&) {}), "no error");
  const std::string embed = at("a") + ": weights/embed: ", experts = at("a") + ": weights/experts: ";
  EXPECT_EQ(with(0, "weights/embed", {{0, 0}, {4, 2}}), embed + "element [0,1] is in two blocks");
  EXPECT_EQ(with(3, "weights/embed", {{3, 2}, {4, 2}}), embed + "element [3,2] is in two blocks");
  EXPECT_EQ(with(0, "weights/embed", {{0, 0}, {3, 1}}), embed + "element [3,0] is in no block");
  EXPECT_EQ(with(3, "weights/embed", {{4, 3}, {3, 1}}), embed + "element [4,2] is in no block");
  EXPECT_EQ(with(3, "weights/embed", {{4, 0}, {3, 2}}), embed + "element [4,0] is in two blocks") << "equal volumes";
  EXPECT_EQ(with(4, "weights/pinwheel", {{2, 1}, {1, 1}}),
            at("a") + ": weights/pinwheel: element [2,1] is in two blocks");
  EXPECT_EQ(with(2, "weights/experts", {{0, 3, 0}, {1, 1, 2}}), experts + "element [1,3,0] is in no block");
  EXPECT_EQ(with(1, "weights/experts", {{0, 0, 0}, {2, 3, 2}}), experts + "element [0,0,0] is in two blocks");
  EXPECT_EQ(with(4, "lora/four", {{1, 2, 1, 0}, {1, 1, 1, 2}}),
            at("a") + ": lora/four: element [1,2,1,2] is in no block");
  EXPECT_EQ(with(3, "weights/rows", {{1, 0}, {4, 6}}), at("a") + ": weights/rows: row 1 is in two blocks");
  EXPECT_EQ(with(3, "weights/rows", {{3, 0}, {2, 6}}), at("a") + ": weights/rows: row 2 is in no block");
  EXPECT_EQ(with([](auto& e) {
              e[0].blocks.push_back({sample("step_scale", DType::f64, {}).meta, {}});
            }),
            at("a") + ": step_scale: row 0 is in two blocks");
  EXPECT_EQ(with([](auto& e) {
              e[0].blocks.push_back({sample("weights/embed", DType::f32, {7, 4}).meta, {{4, 0}, {3, 2}}});
            }),
            embed + "two blocks in one file");
}

TEST_F(WrongBlocks, outside_their_tensor) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  const std::string embed = at("a") + ": weights/embed: ", outside = "a block with offset ";
  EXPECT_EQ(with(3, "weights/embed", {{4, 2}, {3, 3}}),
            embed + "a block with offset 2 and extent 3 is outside dimension 1, which has 4");
  EXPECT_HOLDS(with(3, "weights/embed", {{-1, 2}, {3, 2}}), embed + outside + "-1");
  EXPECT_HOLDS(with(3, "weights/embed", {{4, 2}, {-3, 2}}), "and extent -3 is outside dimension 0");
  EXPECT_HOLDS(with(3, "weights/embed", {{kFar, 2}, {kFar, 2}}), embed + outside);
  EXPECT_HOLDS(with(3, "weights/embed", {{-kFar - 1, 2}, {kFar, 2}}), embed + outside);
  EXPECT_EQ(with(3, "weights/embed", {{4}, {3}}),
            embed + "offset and extent of a block have lengths 1 and 1, the shape of the tensor 2");
  EXPECT_EQ(with(3, "weights/embed", {{4, 2}, {3, 2, 1}}),
            embed + "offset and extent of a block have lengths 2 and 3, the shape of the tensor 2");
  EXPECT_EQ(with(3, "weights/embed", {{4, 2}, {3, 0}}), embed + "a block is empty");
  EXPECT_EQ(with(3, "step_scale", {{0}, {1}}),
            at("a") + ": step_scale: offset and extent of a block have lengths 1 and 1, the shape of the tensor 0");
}

// Two blocks of one shape change places in the manifest: only the attributes of the files tell.
TEST_F(WrongBlocks, that_differ_from_the_attributes_of_their_files) {
  const auto swap = [](auto& e) {
    std::swap(block_of(e, 2, "weights/embed").offset, block_of(e, 3, "weights/embed").offset);
  };
  EXPECT_EQ(with(swap), "no error");  // only the files of the documents are opened here
  EXPECT_HOLDS(verify_error(at("a")),
               "rank-00002-of-00005.h5: /weights/embed: its dtype, shape, offset or global_shape differs from the "
               "manifest");
}

// The manifest of one tensor of ones and zeros, in blocks by file.
Manifest manifest_of(const std::vector<std::int64_t>& shape, const std::vector<Block>& blocks) {
  Manifest manifest;
  manifest.files.resize(blocks.size());
  manifest.mesh = test::mesh_of(std::ssize(blocks));
  manifest.tensors.push_back({{"w", DType::u8, shape, "", "", {}}, {}});
  for (std::size_t i = 0; i < blocks.size(); ++i) manifest.tensors.front().blocks.push_back({i, blocks[i]});
  return manifest;
}

// What check() must report, by counting the blocks of each element.
std::string counted(const std::vector<std::int64_t>& shape, const std::vector<Block>& blocks) {
  const TensorMeta meta{"w", DType::u8, shape, "", "", {}};
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(meta.bytes()); ++i) {
    std::vector<std::int64_t> at(shape.size());
    std::int64_t rest = i;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) at[d] = rest % shape[d];
    const auto holds = [&](const Block& b) {
      for (std::size_t d = 0; d < at.size(); ++d)
        if (at[d] < b.offset[d] || at[d] >= b.offset[d] + b.extent[d]) return false;
      return true;
    };
    const auto count = std::count_if(blocks.begin(), blocks.end(), holds);
    if (count == 1) continue;
    const bool rows = std::all_of(blocks.begin(), blocks.end(), [&](const Block& b) { return is_whole_rows(meta, b); });
    std::string name = "row " + std::to_string(at[0]);
    if (!rows) {
      name = "element [";
      for (std::size_t d = 0; d < at.size(); ++d) name += (d == 0 ? "" : ",") + std::to_string(at[d]);
      name += "]";
    }
    return "m: w: " + name + (count > 1 ? " is in two blocks" : " is in no block");
  }
  return "no error";
}

TEST(Cover, IsExactForRandomBlocks) {
  std::mt19937 random(33);
  const auto number = [&](std::int64_t begin, std::int64_t end) {
    return std::uniform_int_distribution<std::int64_t>(begin, end - 1)(random);
  };
  int whole = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(number(1, 5)));
    for (std::int64_t& extent : shape) extent = number(1, 5);
    std::vector<std::pair<std::int64_t, Block>> parts;
    test::split({std::vector<std::int64_t>(shape.size(), 0), shape}, static_cast<std::size_t>(number(0, 4)), 0,
                number(1, 9), parts);
    std::vector<Block> blocks;
    for (auto& [rank, block] : parts) blocks.push_back(block);
    std::shuffle(blocks.begin(), blocks.end(), random);
    // Up to two blocks move or change their size, within the tensor.
    for (std::int64_t change = number(0, 3); change > 0; --change) {
      Block& block = blocks[static_cast<std::size_t>(number(0, static_cast<std::int64_t>(blocks.size())))];
      const auto d = static_cast<std::size_t>(number(0, static_cast<std::int64_t>(shape.size())));
      block.offset[d] = number(0, shape[d]);
      block.extent[d] = number(1, shape[d] - block.offset[d] + 1);
    }
    const std::string expected = counted(shape, blocks);
    whole += expected == "no error" ? 1 : 0;
    EXPECT_EQ(error_of([&] { check(manifest_of(shape, blocks), "m"); }), expected) << trial;
  }
  EXPECT_GT(whole, 1000);
  EXPECT_LT(whole, 3000);
}

// Blocks that all overlap in the first dimension or in none, in time that does not grow with the square of their
// number.
TEST(Cover, OfManyBlocksIsCheckedInLittleTime) {
  constexpr std::int64_t kMany = 200'000;
  for (const std::size_t d : {0, 1}) {
    std::vector<Block> blocks;
    for (std::int64_t i = 0; i < kMany; ++i) {
      blocks.push_back({{0, 0}, {kMany, kMany}});
      blocks.back().offset[d] = i;
      blocks.back().extent[d] = 1;
    }
    const std::clock_t begin = std::clock();
    EXPECT_EQ(error_of([&] { check(manifest_of({kMany, kMany}, blocks), "m"); }), "no error");
    blocks.back().offset[d] = 7;
    EXPECT_HOLDS(error_of([&] { check(manifest_of({kMany, kMany}, blocks), "m"); }), "is in two blocks");
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
  }
}

TEST(Manifests, ListTensorsWithoutElements) {
  Manifest manifest = manifest_of({0, 4}, {});
  manifest.files.push_back({4096, std::string(32, '0')});
  manifest.mesh = test::mesh_of(1);
  const Manifest back = parse_manifest(format_manifest(manifest), "m");
  EXPECT_EQ(back.tensors.at(0).meta, manifest.tensors.at(0).meta);
  EXPECT_TRUE(back.tensors.at(0).blocks.empty());
  manifest.tensors[0].blocks.push_back({0, {{0, 0}, {0, 4}}});
  EXPECT_EQ(error_of([&] { (void)parse_manifest(format_manifest(manifest), "m"); }), "m: w: a block is empty");
}

// Text of a manifest with a valid digest whose tensor [7, 4] has these blocks.
std::string parse_error(const std::string& blocks) {
  Manifest manifest = manifest_of({7, 4}, {{{0, 0}, {4, 4}}, {{4, 0}, {3, 4}}});
  manifest.files = {{4096, std::string(32, '0')}, {4096, std::string(32, '1')}};
  std::string text = format_manifest(manifest);
  const std::string from = "[[0,[0,0],[4,4]],[1,[4,0],[3,4]]]";
  text.replace(text.find(from), from.size(), blocks);
  return error_of([&] { (void)parse_manifest(test::sealed_manifest(text), "m"); });
}

TEST(Manifests, WithBlocksOfAnotherForm) {
  EXPECT_EQ(parse_error("[[0,[0,0],[4,4]],[1,[4,0],[3,4]]]"), "no error");
  EXPECT_EQ(parse_error("[[1,[0,0],[7,1]],[0,[0,1],[7,3]]]"), "no error");
  const std::string form = "m: w: a block must be [file, [offset, ...], [extent, ...]]";
  EXPECT_EQ(parse_error("[[0,[0,0]]]"), form);
  EXPECT_EQ(parse_error("[[0,[0,0],[7,4],1]]"), form);
  for (const char* bad : {"[[0,0,4],[1,4,7]]", "[0]", "{}", "[[0,[0,0],[7,4.5]]]", "[[0,[0,\"0\"],[7,4]]]",
                          "[[0,[0,0],[7,18446744073709551615]]]", "[[-1,[0,0],[7,4]]]", "[[2,[0,0],[7,4]]]", "[]"})
    EXPECT_HOLDS(parse_error(bad), "m: ") << bad;
  EXPECT_EQ(parse_error("[]"), "m: w: row 0 is in no block");
  EXPECT_EQ(parse_error("[[0,[0,18446744073709551615],[7,4]]]"), "m: w: a block: integer out of range");
  EXPECT_EQ(parse_error("[[-1,[0,0],[7,4]]]"), "m: w: a block: file: out of range");
}

TEST(Manifests, WithAMesh) {
  const auto refused = [](const std::string& mesh, std::size_t files = 8) {
    Manifest manifest = manifest_of({0, 4}, {});
    manifest.files.resize(files, {4096, std::string(32, '0')});
    manifest.mesh = json::parse(mesh, "mesh");
    return error_of([&] { (void)parse_manifest(format_manifest(manifest), "m"); });
  };
  const auto of = [](const std::string& replicas, const std::string& shards, const std::string& pp,
                     const std::string& ep, const std::string& tp) {
    return R"({"dp_replicate":)" + replicas + R"(,"dp_shard":)" + shards + R"(,"pp":)" + pp + R"(,"ep":)" + ep +
           R"(,"tp":)" + tp + "}";
  };
  EXPECT_EQ(refused(of("1", "8", "1", "8", "1")), "no error");
  EXPECT_EQ(refused(of("1", "1", "1", "1", "1"), 1), "no error");
  EXPECT_EQ(refused(of("1", "2", "2", "4", "2")), "no error");
  for (const char* bad : {"null", "[]", "\"dp_shard\"", "8", "true"}) EXPECT_EQ(refused(bad), "m: mesh: not an object");
  EXPECT_EQ(refused("{}"), "m: mesh: no dp_replicate");
  EXPECT_EQ(refused(R"({"dp_replicate":1,"dp_shard":8,"pp":1,"ep":1})"), "m: mesh: no tp");
  EXPECT_EQ(refused(R"({"dp_replicate":1,"dp_shard":8,"pp":1,"ep":1,"tp":1,"cp":1})"), "m: mesh: unknown member cp");
  for (const char* bad : {"0", "-1", "-8", "1.0", "0.5", "null", "\"1\"", "[1]", "{}", "true"}) {
    EXPECT_EQ(refused(of(bad, "8", "1", "1", "1")), "m: mesh: dp_replicate is not a positive integer") << bad;
    EXPECT_EQ(refused(of("1", "8", "1", bad, "1")), "m: mesh: ep is not a positive integer") << bad;
  }
  const std::string other = "m: mesh: dp_replicate x dp_shard x pp x tp is not the number of files, 8";
  for (const char* large : {"2", "3", "7", "9", "4294967296", "9223372036854775807", "18446744073709551615"}) {
    EXPECT_EQ(refused(of("1", large, "1", "1", "1")), other);
    EXPECT_EQ(refused(of(large, large, large, "1", large)), other);
  }
  EXPECT_EQ(refused(of("1", "8", "1", "1", "1"), 1), other.substr(0, other.size() - 1) + "1");
  for (const char* ep : {"3", "8", "16", "18446744073709551615"})
    EXPECT_EQ(refused(of("2", "4", "1", ep, "1")), "m: mesh: ep does not divide dp_shard x tp");
}

TEST_F(Blocks, a_mesh_of_other_ranks_is_not_written) {
  const std::string temporary = begin_folder(at("a"));
  const std::vector<FileEntry> entries = write_shards(temporary, divided());
  EXPECT_HOLDS(error_of([&] { commit_folder(temporary, at("a"), FileKind::training, test::mesh_of(4), entries); }),
               "a: mesh: dp_replicate x dp_shard x pp x tp is not the number of files, 5");
  EXPECT_FALSE(std::filesystem::exists(at("a")));
}

}  // namespace
}  // namespace fp8::ckpt
