// Round trips: one file, folders of any number of ranks, and equality of bytes between them.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "fixture.h"
#include "fp8/base/digest.h"
#include "fp8/h5/user_block.h"

namespace fp8::ckpt {
namespace {

using Checkpoints = FolderTest;

// No prefix begins another, so that each name is in one section at most.
TEST(Sections, EveryNameIsInOneRow) {
  for (const Section& s : kSections) {
    const std::string name = std::string(s.prefix) + "model.norm.weight";
    EXPECT_TRUE(is_known_section(name)) << name;
    EXPECT_EQ(values_of(name), s.values) << name;
    EXPECT_EQ(std::ranges::count_if(kSections, [&](const Section& o) { return name.starts_with(o.prefix); }), 1);
  }
  EXPECT_FALSE(is_known_section("mine/x"));
  EXPECT_EQ(values_of("mine/x"), h5::Values::any);
  EXPECT_EQ(values_of("optimizer/v/x"), h5::Values::finite_unsigned);
  EXPECT_EQ(values_of("optimizer/m/x"), h5::Values::finite);
}

TEST_F(Checkpoints, a_single_file_reads_back) {
  write_model(at("m.h5"));
  const Checkpoint c = Checkpoint::open(at("m.h5"));
  EXPECT_EQ(c.kind(), FileKind::model);
  EXPECT_EQ(c.version(), 2);
  EXPECT_FALSE(std::filesystem::is_directory(c.path()));
  EXPECT_EQ(c.world(), 1);
  EXPECT_EQ(c.config(), config());
  EXPECT_TRUE(c.train().is_null());
  EXPECT_EQ(c.tokenizer(), "{\"model\":{}}");
  EXPECT_EQ(c.huggingface(), texts());
  ASSERT_EQ(c.provenance().as_array().size(), 1U);
  EXPECT_EQ(c.provenance().as_array()[0].as_object().at("command").as_string(), "fp8-init tiny");
  EXPECT_EQ(c.tensors().size(), samples().size());
  EXPECT_EQ(c.tensors(kMomentM).size(), 1U);
  ASSERT_EQ(c.unknown().size(), 2U);
  EXPECT_EQ(c.unknown()[0].name, "lora/a");
  expect_samples(c);
  c.verify();
}

TEST_F(Checkpoints, equal_content_is_equal_bytes) {
  write_model(at("a.h5"));
  write_model(at("b.h5"));
  EXPECT_EQ(read_file(at("a.h5")), read_file(at("b.h5")));
  write_folder(at("step-00000001"), 2);
  write_folder(at("step-00000002"), 2);
  for (const char* name : {"rank-00000-of-00002.h5", "rank-00001-of-00002.h5", "manifest.json"})
    EXPECT_EQ(read_file(at("step-00000001/") + name), read_file(at("step-00000002/") + name)) << name;
}

TEST_F(Checkpoints, a_digest_changes_with_the_content) {
  std::set<std::string> digests;
  const auto digest = [&](const std::string& name) {
    const std::string said = Checkpoint::open(at(name)).digest();
    digests.insert(said);
    return said;
  };
  write_model(at("a.h5"));
  write_model(at("b.h5"));
  EXPECT_EQ(digest("a.h5"), digest("b.h5"));
  EXPECT_EQ(digest("a.h5"), h5::Reader(at("a.h5"), h5::kCheckpointMagic).stated_digest());
  write_model(at("c.h5"), FileKind::training);
  for (const int run : {0, 1}) write_folder(at("run" + std::to_string(run)), 2, 3, static_cast<unsigned>(run));
  write_folder(at("again"), 2);
  EXPECT_EQ(digest("again"), digest("run0"));
  const std::string manifest = read_file(at("again/manifest.json"));
  EXPECT_EQ(digest("again"), digest_of(std::as_bytes(std::span(manifest))).hex());
  (void)digest("c.h5"), (void)digest("run1");
  EXPECT_EQ(digests.size(), 4U);
}

TEST_F(Checkpoints, names_of_files_are_bare) {
  for (const char* name : {"", ".", "..", "a/b", "../up", "/root"}) {
    ModelWriter w(at("m.h5"), FileKind::model, true);
    EXPECT_NE(error_of([&] { w.huggingface({{name, "x"}}); }).find("not a file name"), std::string::npos) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(at("m.h5")));
}

TEST_F(Checkpoints, any_number_of_ranks_reads_back_as_whole_tensors) {
  for (const std::int64_t world : {1, 2, 3, 4, 9}) {
    const std::string path = at("step-0000000" + std::to_string(world));
    write_folder(path, world);
    EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
    const Checkpoint c = Checkpoint::open(path + "/");
    EXPECT_TRUE(std::filesystem::is_directory(c.path()));
    EXPECT_EQ(c.world(), world);
    EXPECT_EQ(c.mesh(), test::mesh_of(world));
    EXPECT_EQ(c.train().as_object().at("step").as_int(), 3);
    EXPECT_EQ(c.tokenizer(), std::nullopt);
    EXPECT_EQ(c.huggingface(), texts());
    EXPECT_TRUE(c.provenance().as_array().empty());
    expect_samples(c);
    c.verify();
  }
}

TEST_F(Checkpoints, verifying_copies_blocks_to_the_destination) {
  write_folder(at("step-00000002"), 2);
  const Checkpoint c = Checkpoint::open(at("step-00000002"));
  for (const TensorMeta& meta : c.tensors()) {
    std::vector<std::byte> left(meta.bytes()), read(meta.bytes());
    for (std::size_t i = 0; i < c.file_count(); ++i) {
      c.verify_file(i, [&](const TensorMeta& held, const Block& block) {
        if (held.name != meta.name) return std::span<std::byte>();
        EXPECT_TRUE(is_whole_rows(meta, block));
        return std::span(left).subspan(static_cast<std::size_t>(block.begin_row()) * meta.row_bytes(),
                                       static_cast<std::size_t>(block.elements()) * dtype::size_of(meta.dtype));
      });
    }
    c.read(meta.name, read);
    EXPECT_TRUE(left == read) << meta.name;
  }
}

TEST_F(Checkpoints, rows_across_files) {
  write_folder(at("step-00000003"), 3);  // 7 rows of 4 floats as 3, 2, 2
  const Checkpoint c = Checkpoint::open(at("step-00000003"));
  const Sample s = samples()[0];
  for (std::int64_t begin = 0; begin <= 7; ++begin) {
    for (std::int64_t end = begin; end <= 7; ++end) {
      std::vector<std::byte> rows(static_cast<std::size_t>(end - begin) * 16);
      c.read_rows(s.meta.name, begin, end, rows);
      EXPECT_TRUE(std::equal(rows.begin(), rows.end(), s.bytes.begin() + begin * 16)) << begin << " to " << end;
    }
  }
  EXPECT_HOLDS(error_of([&] { c.read_rows(s.meta.name, 0, 8, {}); }), "has no rows 0 to 8");
  EXPECT_HOLDS(error_of([&] { c.read_rows(s.meta.name, 0, 1, {}); }), "buffer size differs");
  EXPECT_HOLDS(error_of([&] { c.read("weights/none", {}); }), "/weights/none: there is no such tensor");
}

TEST_F(Checkpoints, rows_as_floats) {
  {
    ModelWriter w(at("m.h5"), FileKind::quantized, false);
    w.document("config", config());
    const std::vector<std::uint16_t> bf16 = {0x3F80, 0xC000, 0x3F00, 0x0000};
    w.tensor({"weights/a", DType::bf16, {2, 2}, "", "", {}}, std::as_bytes(std::span(bf16)));
    const std::vector<float> f32 = {1, -2, 3};
    w.tensor({"weights/b", DType::f32, {3}, "", "", {}}, std::as_bytes(std::span(f32)));
    const std::vector<std::uint8_t> codes = {0x38, 0x78};  // 1 and 256 in E4M3
    w.tensor({"weights/c", DType::e4m3, {2, 1}, "", "", {}}, std::as_bytes(std::span(codes)));
    w.commit();
  }
  const Checkpoint c = Checkpoint::open(at("m.h5"));
  std::vector<float> out(2);
  c.read_rows_as_f32("weights/a", 0, 1, out);
  EXPECT_EQ(out, (std::vector<float>{1, -2}));
  c.read_rows_as_f32("weights/b", 1, 3, out);
  EXPECT_EQ(out, (std::vector<float>{-2, 3}));
  c.read_rows_as_f32("weights/c", 0, 2, out);
  EXPECT_EQ(out, (std::vector<float>{1, 256}));
  EXPECT_HOLDS(error_of([&] { c.read_rows_as_f32("weights/a", 0, 2, out); }), "buffer size differs");
}

// Saving on P ranks, loading on Q and saving on P again gives the same bytes; so does merging a folder into one file.
TEST_F(Checkpoints, resharding_keeps_every_byte) {
  const auto copy_folder = [&](const std::string& from, const std::string& to, std::int64_t world) {
    const Checkpoint source = Checkpoint::open(from);
    const std::string temporary = begin_folder(to);
    std::vector<FileEntry> entries;
    for (std::int64_t rank = 0; rank < world; ++rank) {
      ShardWriter w(temporary, rank, world, source.kind());
      if (rank == 0) w.document("config", source.config());
      if (rank == 0) w.document("train", source.train());
      if (rank == 0) w.huggingface(source.huggingface());
      for (const Sample& s : samples()) {
        const std::int64_t begin = first_row(s.meta.rows(), rank, world);
        const std::int64_t end = first_row(s.meta.rows(), rank + 1, world);
        if (begin == end) continue;
        std::vector<std::byte> rows(static_cast<std::size_t>(end - begin) * s.meta.row_bytes());
        source.read_rows(s.meta.name, begin, end, rows);
        w.tensor(source.at(s.meta.name), rows_block(s.meta, begin, end), rows);
      }
      entries.push_back(w.finish());
    }
    commit_folder(temporary, to, source.kind(), test::mesh_of(world), entries);
  };
  write_folder(at("step-00000002"), 2);
  copy_folder(at("step-00000002"), at("step-00000003"), 3);
  copy_folder(at("step-00000003"), at("step-00000004"), 2);
  for (const char* name : {"rank-00000-of-00002.h5", "rank-00001-of-00002.h5", "manifest.json"})
    EXPECT_EQ(read_file(at("step-00000002/") + name), read_file(at("step-00000004/") + name)) << name;
  const auto merge = [&](const std::string& from, const std::string& to) {
    const Checkpoint source = Checkpoint::open(from);
    ModelWriter w(to, source.kind(), false);
    w.document("config", source.config());
    w.document("train", source.train());
    for (const TensorMeta& meta : source.tensors())
      if (is_known_section(meta.name)) copy_tensor(source, meta.name, w);
    copy_unknown(source, w);
    w.commit();
  };
  merge(at("step-00000002"), at("two.h5"));
  merge(at("step-00000003"), at("three.h5"));
  EXPECT_EQ(read_file(at("two.h5")), read_file(at("three.h5")));
  const Checkpoint merged = Checkpoint::open(at("two.h5"));
  EXPECT_EQ(merged.at("lora/a").attributes, samples()[6].meta.attributes);
}

TEST_F(Checkpoints, file_entries_round_trip_as_json) {
  const std::string temporary = begin_folder(at("step-00000001"));
  const FileEntry entry = write_shard(temporary, 0, 2);
  const FileEntry back = file_entry_from_json(to_json(entry), "entry");
  EXPECT_EQ(to_json(back), to_json(entry));
  EXPECT_EQ(back.name, "rank-00000-of-00002.h5");
  ASSERT_EQ(back.blocks.size(), entry.blocks.size());
  EXPECT_EQ(back.blocks[0].tensor, entry.blocks[0].tensor);
  EXPECT_EQ(back.blocks[0].block, (Block{{0, 0}, {4, 4}}));
}

TEST_F(Checkpoints, a_single_file_appears_complete_or_not_at_all) {
  write_model(at("m.h5"));
  const std::string before = read_file(at("m.h5"));
  EXPECT_HOLDS(error_of([&] { write_model(at("m.h5")); }), "m.h5: exists");
  {
    ModelWriter w(at("m.h5"), FileKind::model, true);
    w.document("config", config());
  }
  EXPECT_HOLDS(error_of([&] { ModelWriter(at("m.h5"), FileKind::model, true).commit(); }), "has no /config");
  EXPECT_HOLDS(error_of([&] {
                 ModelWriter w(at("m.h5"), FileKind::training, true);
                 w.document("config", config());
                 w.commit();
               }),
               "has no /train");
  EXPECT_HOLDS(error_of([&] {
                 ModelWriter w(at("m.h5"), FileKind::model, true);
                 w.begin_tensor(samples()[0].meta);
                 w.end_tensor();
               }),
               "ended after 0 of 112 bytes");
  EXPECT_EQ(read_file(at("m.h5")), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(at("")), {}), 1) << "something was left behind";
  write_model(at("m.h5"), FileKind::training, true);
  EXPECT_EQ(Checkpoint::open(at("m.h5")).kind(), FileKind::training);
}

TEST_F(Checkpoints, a_folder_must_have_every_row_once) {
  const std::string path = at("step-00000001");
  const auto commit = [&](const std::function<void(std::vector<FileEntry>&)>& change) {
    const std::string temporary = begin_folder(path);
    std::vector<FileEntry> entries = {write_shard(temporary, 0, 2), write_shard(temporary, 1, 2)};
    change(entries);
    return error_of(
        [&] { commit_folder(temporary, path, FileKind::training, test::mesh_of(std::ssize(entries)), entries); });
  };
  EXPECT_HOLDS(commit([](auto& e) { e.pop_back(); }), "the file of rank 0 of 1 is missing");
  EXPECT_HOLDS(commit([](auto& e) { e[1].blocks.erase(e[1].blocks.begin()); }),
               "weights/model.embed_tokens.weight: row 4 is in no block");
  EXPECT_HOLDS(commit([](auto& e) { e[1].blocks[0].block = {{3, 0}, {4, 4}}; }), "row 3 is in two blocks");
  EXPECT_HOLDS(commit([](auto& e) { e[1].blocks[0].tensor.dtype = DType::u32; }),
               "ranks disagree on its dtype, shape or attributes");
  EXPECT_HOLDS(commit([](auto& e) { e[0].digest[0] = e[0].digest[0] == '0' ? '1' : '0'; }),
               "is not the file that the manifest describes");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(commit([](auto&) {}), "no error");
  EXPECT_EQ(verify_error(path), "no error");
}

TEST_F(Checkpoints, a_step_saved_again_replaces_the_folder) {
  write_folder(at("step-00000003"), 2);
  std::filesystem::remove(at("step-00000003/rank-00001-of-00002.h5"));
  write_folder(at("step-00000003"), 3);
  EXPECT_EQ(verify_error(at("step-00000003")), "no error");
  EXPECT_EQ(Checkpoint::open(at("step-00000003")).world(), 3);
  EXPECT_FALSE(std::filesystem::exists(at("step-00000003.tmp")));
}

TEST_F(Checkpoints, a_file_of_a_rank_has_one_writer) {
  const std::string temporary = begin_folder(at("step-00000003"));
  const ShardWriter first(temporary, 1, 2, FileKind::training);
  EXPECT_HOLDS(error_of([&] { const ShardWriter second(temporary, 1, 2, FileKind::training); }),
               "rank-00001-of-00002.h5: File exists");
}

TEST_F(Checkpoints, missing_space_is_an_error) {
  EXPECT_EQ(error_of([&] { check_space(at(""), 1); }), "no error");
  EXPECT_HOLDS(error_of([&] { check_space(at(""), std::uint64_t{1} << 62); }), "needed");
  EXPECT_EQ(error_of([&] { check_space(at(""), std::uint64_t{1} << 62); }).find("--out"), std::string::npos);
}

}  // namespace
}  // namespace fp8::ckpt
