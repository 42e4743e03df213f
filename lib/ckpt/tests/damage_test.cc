// Every class of damage is found and named, and never loaded.
#include <sys/stat.h>

#include <functional>

#include "fixture.h"
#include "fp8/h5/writer.h"

namespace fp8::ckpt {
namespace {

class Damage : public FolderTest {
 protected:
  Damage() {
    write_folder(at("a"), 2, 3);
    write_folder(at("b"), 2, 4);
  }
  std::string shard(const std::string& folder, int rank) const {
    return at(folder + "/rank-0000" + std::to_string(rank) + "-of-00002.h5");
  }
  std::string manifest() const { return at("a/manifest.json"); }
  // Changes the manifest's text and updates its digest.
  std::string with_manifest(const std::string& from, const std::string& to) {
    std::string text = read_file(manifest());
    const std::size_t place = text.find(from);
    if (place == std::string::npos) return "no such text";
    text.replace(place, from.size(), to);
    write_file(manifest(), test::sealed_manifest(text));
    return verify_error(at("a"));
  }
};

TEST_F(Damage, flipped_bits_in_every_region_of_a_shard) {
  const std::string good = read_file(shard("a", 1));
  for (std::size_t i = 0; i < good.size(); i += 41) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    write_file(shard("a", 1), bad);
    EXPECT_HOLDS(verify_error(at("a")), "rank-00001-of-00002.h5: ") << i;
  }
}

TEST_F(Damage, runs_of_zeros_and_ones_name_the_tensor) {
  std::string bad = read_file(shard("a", 0));
  const Sample s = samples()[0];
  const std::size_t place = bad.find(std::string(reinterpret_cast<const char*>(s.bytes.data()), 32));
  ASSERT_NE(place, std::string::npos);
  for (const char c : {'\0', '\xff'}) {
    bad.replace(place, 32, std::string(32, c));
    write_file(shard("a", 0), bad);
    EXPECT_HOLDS(verify_error(at("a")), "rank-00000-of-00002.h5: /weights/model.embed_tokens.weight: damaged");
  }
}

TEST_F(Damage, other_lengths) {
  const std::string good = read_file(shard("a", 1));
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{100}, std::size_t{512}, std::size_t{1000}, good.size() / 2, good.size() - 1}) {
    write_file(shard("a", 1), good.substr(0, size));
    EXPECT_HOLDS(verify_error(at("a")), "rank-00001-of-00002.h5: ") << size;
    EXPECT_HOLDS(verify_error(at("a")), "truncated") << size;
  }
  write_file(shard("a", 1), good + '\0');
  EXPECT_HOLDS(verify_error(at("a")), "1 bytes after its end");
}

TEST_F(Damage, swapped_missing_and_mixed_shards) {
  std::filesystem::rename(shard("a", 0), at("x"));
  EXPECT_HOLDS(verify_error(at("a")), "rank-00000-of-00002.h5");
  std::filesystem::rename(shard("a", 1), shard("a", 0));
  std::filesystem::rename(at("x"), shard("a", 1));
  EXPECT_HOLDS(verify_error(at("a")), "is not the file that the manifest describes");
  std::filesystem::rename(shard("a", 1), at("x"));
  std::filesystem::rename(shard("a", 0), shard("a", 1));
  std::filesystem::rename(at("x"), shard("a", 0));
  EXPECT_EQ(verify_error(at("a")), "no error");
  // Rank 0's file of another step: every tensor in it is valid, the step in /train differs.
  std::filesystem::copy_file(shard("b", 0), shard("a", 0), std::filesystem::copy_options::overwrite_existing);
  EXPECT_HOLDS(verify_error(at("a")), "rank-00000-of-00002.h5: is not the file that the manifest describes");
  EXPECT_HOLDS(error_of([&] { Checkpoint::open(shard("b", 0)); }), "give the folder that contains it");
}

TEST_F(Damage, manifest_edits) {
  const std::string good = read_file(manifest());
  for (std::size_t i = 0; i < good.size(); i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    write_file(manifest(), bad);
    EXPECT_HOLDS(verify_error(at("a")), "manifest.json: ") << i;
  }
  for (const std::string& bad : {good + " ", good + "\n", good.substr(0, good.size() - 1),
                                 good.substr(0, good.size() / 2), std::string("{}"), std::string()}) {
    write_file(manifest(), bad);
    EXPECT_HOLDS(verify_error(at("a")), "manifest.json: damaged");
  }
  std::filesystem::remove(manifest());
  EXPECT_HOLDS(verify_error(at("a")), "not a checkpoint: it has no manifest.json");
  ASSERT_EQ(::mkfifo(manifest().c_str(), 0600), 0);  // without a writer
  EXPECT_EQ(verify_error(at("a")), manifest() + ": not a regular file");
}

TEST_F(Damage, manifests_with_a_wrong_world) {
  EXPECT_HOLDS(with_manifest("\"world\":2", "\"world\":3"), "world is not the number of files");
}

TEST_F(Damage, manifests_with_other_file_names) {
  EXPECT_HOLDS(with_manifest("rank-00001-of-00002.h5", "../../../etc/passwd"),
               "file 1 is not named rank-00001-of-00002.h5");
}

TEST_F(Damage, manifests_of_another_version) {
  EXPECT_HOLDS(with_manifest("\"version\":2", "\"version\":1"),
               "manifest.json: version 1 of the checkpoint format is not known (2 is)");
  EXPECT_HOLDS(with_manifest("\"version\":1", "\"version\":7"),
               "version 7 of the checkpoint format is not known (2 is)");
}

TEST_F(Damage, manifests_with_rows_moved) {
  EXPECT_HOLDS(with_manifest("[0,[0,0],[4,4]],[1,[4,0],[3,4]]", "[0,[0,0],[3,4]],[1,[3,0],[4,4]]"),
               "its dtype, shape, offset or global_shape differs from the manifest");
}

TEST_F(Damage, manifests_with_rows_missing) {
  EXPECT_HOLDS(with_manifest("[0,[0,0],[4,4]],[1,[4,0],[3,4]]", "[0,[0,0],[4,4]]"),
               "model.embed_tokens.weight: row 4 is in no block");
}

TEST_F(Damage, manifests_with_huge_shapes) {
  EXPECT_HOLDS(with_manifest("\"shape\":[7,4]", "\"shape\":[4611686018427387904,4]"), "manifest.json: ");
}

TEST_F(Damage, manifests_with_wrong_types) {
  EXPECT_HOLDS(with_manifest("\"shape\":[7,4]", "\"shape\":[7,\"4\"]"), "manifest.json: ");
}

TEST_F(Damage, manifests_without_one_tensor) {
  std::string text = read_file(manifest());
  const std::size_t begin = text.find("{\"name\":\"lora/a\"");
  const std::size_t end = text.find('\n', begin) + 1;
  EXPECT_HOLDS(with_manifest(text.substr(begin, end - begin), ""), "holds tensors that the manifest does not list");
}

TEST_F(Damage, single_files) {
  write_model(at("m.h5"));
  const std::string good = read_file(at("m.h5"));
  for (std::size_t i = 0; i < good.size(); i += 61) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    write_file(at("m.h5"), bad);
    EXPECT_HOLDS(verify_error(at("m.h5")), "m.h5: ") << i;
  }
  EXPECT_HOLDS(verify_error(at("none.h5")), "none.h5: ");
  write_file(at("m.h5"), "hello");
  EXPECT_HOLDS(verify_error(at("m.h5")), "m.h5: not a checkpoint");
}

TEST_F(Damage, files_of_another_format_or_version) {
  const auto write = [&](const std::string& format, std::int64_t version, const std::string& kind) {
    h5::Writer w(at("x.h5"), h5::kCheckpointMagic);
    w.attribute("", "format", format);
    w.attribute("", "version", version);
    w.attribute("", "kind", kind);
    w.text("config", "{}");
    w.finish();
    return verify_error(at("x.h5"));
  };
  EXPECT_EQ(write("fp8-checkpoint", 2, "model"), "no error");
  EXPECT_HOLDS(write("fp8-tokens", 2, "model"), "its format is not fp8-checkpoint");
  EXPECT_HOLDS(write("fp8-checkpoint", 1, "model"), "x.h5: version 1 of the checkpoint format is not known (2 is)");
  EXPECT_HOLDS(write("fp8-checkpoint", 2, "\x1b[2J"), "unknown kind");
}

TEST_F(Damage, documents_that_are_not_json) {
  h5::Writer w(at("x.h5"), h5::kCheckpointMagic);
  w.attribute("", "format", std::string("fp8-checkpoint"));
  w.attribute("", "version", kVersion);
  w.attribute("", "kind", std::string("model"));
  w.text("config", "{\"a\":");
  w.finish();
  EXPECT_HOLDS(verify_error(at("x.h5")), "x.h5: /config: line 1");
}

}  // namespace
}  // namespace fp8::ckpt
