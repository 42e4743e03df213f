// Records in pipes and provenance.
#include "fp8/model/record.h"

#include <unistd.h>

#include <array>
#include <fstream>

#include "fp8/ckpt/writer.h"
#include "fp8/json/json.h"
#include "golden_models.h"

namespace fp8::model {
namespace {

using test::error_of;

// The result of resolve_checkpoint_argument for `input` on a pipe.
std::string resolved(const std::string& input) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw Error("no pipe");
  if (::write(ends[1], input.data(), input.size()) != static_cast<ssize_t>(input.size())) throw Error("short write");
  ::close(ends[1]);
  std::string result;
  try {
    result = resolve_checkpoint_argument("-", ends[0]);
  } catch (...) {
    ::close(ends[0]);
    throw;
  }
  ::close(ends[0]);
  return result;
}

TEST(Record, NamesThePathItWasGiven) {
  EXPECT_EQ(json::dump(checkpoint_record("a b.h5")), R"({"type":"checkpoint","path":"a b.h5"})");
  EXPECT_EQ(resolved(json::dump(checkpoint_record("a b.h5")) + "\n"), "a b.h5");
}

TEST(Record, TheLastCheckpointIsUsed) {
  EXPECT_EQ(resolved("{\"type\":\"run\"}\n{\"type\":\"checkpoint\",\"path\":\"1\"}\n[1]\n"
                     "{\"type\":\"checkpoint\",\"path\":\"2\"}\n{\"type\":\"end\"}"),
            "2");
}

TEST(Record, APathWithANulCharacterIsRefused) {
  EXPECT_EQ(error_of([] { resolved("{\"type\":\"checkpoint\",\"path\":\"m.h5\\u0000x\"}\n"); }),
            "standard input: the path of the record has a NUL character");
}

TEST(Record, APathIsReturnedUnchanged) { EXPECT_EQ(resolve_checkpoint_argument("m.h5", -1), "m.h5"); }

TEST(Record, OtherInputIsRefused) {
  EXPECT_NE(error_of([] { resolved(""); }).find("standard input: no record names a checkpoint"), std::string::npos);
  EXPECT_NE(error_of([] { resolved("{\"type\":\"step\"}\n"); }).find("no record names"), std::string::npos);
  EXPECT_NE(error_of([] { resolved("linear  shape\n"); }).find("a checkpoint record was expected"), std::string::npos);
  EXPECT_NE(error_of([] { resolved("{\"type\":\"checkpoint\"}\n"); }).find("\"path\""), std::string::npos);
}

TEST(Record, AnUnfinishedSaveIsNoCheckpoint) {
  const fp8::test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.at("step-00000001.tmp"));
  (void)folder.write(".m.h5.abcdefgh.tmp", "");
  std::filesystem::create_symlink("step-00000001.tmp", folder.at("step-00000001"));
  std::filesystem::create_symlink(".m.h5.abcdefgh.tmp", folder.at("m.h5"));
  for (const char* name : {"step-00000001.tmp", "step-00000001.tmp/", "step-00000001.tmp/.", "step-00000001",
                           "step-00000001/", ".m.h5.abcdefgh.tmp", "m.h5"}) {
    const std::string path = folder.at(name);
    EXPECT_EQ(error_of([&] { (void)open_checkpoint(path); }), path + ": not a checkpoint: left by an interrupted save");
  }
  EXPECT_HOLDS(error_of([&] { (void)open_checkpoint(folder.write("mine.tmp", "")); }),
               "mine.tmp: not a checkpoint (or");
}

TEST(Record, OriginIsQuotedForAShell) {
  const std::array<const char*, 5> argv = {"/opt/bin/fp8-init", "tiny", "--set=a=b c", "it's", ""};
  const Origin origin = origin_of("fp8-init", "1.0", static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(origin.command, "fp8-init tiny '--set=a=b c' 'it'\\''s' ''");
  const json::Value list = with_origin(with_origin(nullptr, origin), origin);
  ASSERT_EQ(list.as_array().size(), 2U);
  EXPECT_EQ(list.as_array()[1].as_object().at("tool").as_string(), "fp8-init");
}

class Open : public test::FolderTest {};

TEST_F(Open, InvalidCountersAreRefused) {
  const auto said = [&](std::int64_t step) {
    ckpt::ModelWriter writer(at("m.h5"), ckpt::FileKind::training, true);
    writer.document("config", json::object({}));
    writer.document("train", json::object({{"step", step}, {"updates", 2}, {"tokens", 64}}));
    writer.commit();
    return error_of([&] { (void)open_checkpoint(at("m.h5")); });
  };
  EXPECT_EQ(said(2), "no error");
  EXPECT_EQ(said(-2), at("m.h5") + ": /train: step is -2, which is below 0");
  EXPECT_EQ(said(1), at("m.h5") + ": /train: 2 updates in 1 steps");
}

TEST_F(Open, IdentifiesOtherFiles) {
  EXPECT_NE(error_of([] { open_checkpoint(test::golden("llama3")); }).find("a Hugging Face folder, not a checkpoint"),
            std::string::npos);
  std::filesystem::create_directories(at("run/step-00000100"));
  std::filesystem::create_directories(at("adapter"));
  write("adapter/adapter_config.json", "{}");
  EXPECT_EQ(error_of([&] { open_checkpoint(at("adapter")); }),
            at("adapter") +
                ": a PEFT adapter without its model: convert the model with fp8-convert, and give fp8-step " +
                "or fp8-generate the adapter with --lora " + at("adapter"));
  std::filesystem::create_directories(at("weights"));
  write("weights/model.safetensors", "");
  EXPECT_EQ(error_of([&] { open_checkpoint(at("weights")); }),
            at("weights") + ": weights without a config.json: not a Hugging Face folder, nor a checkpoint; " +
                "put the model's config.json beside them");
  write("config.json", "{}");
  EXPECT_EQ(error_of([&] { open_checkpoint(at("config.json")); }),
            at("config.json") + ": a JSON file, not a checkpoint: give it to fp8-init for a new model, or the folder " +
                "of a trained one, which has the config.json, to fp8-convert; fp8-plan takes it as it is");
  EXPECT_NE(error_of([&] { open_checkpoint(at("run")); }).find("every checkpoint in it is damaged"), std::string::npos);
  write("d.h5", "fp8-tokens 1 ");
  EXPECT_TRUE(is_token_file(at("d.h5")));
  EXPECT_EQ(error_of([&] { open_checkpoint(at("d.h5")); }), at("d.h5") + ": a token file, not a checkpoint");
  EXPECT_EQ(error_of([&] { open_checkpoint(at("none.h5")); }).find(at("none.h5") + ": "), 0U);
  EXPECT_FALSE(is_token_file(at("none.h5")));
}

}  // namespace
}  // namespace fp8::model
