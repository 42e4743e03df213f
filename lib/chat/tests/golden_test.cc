// Token for token what LLaMA-Factory makes of conversations: the reference values of tests/golden/chat.
#include <gtest/gtest.h>

#include "chat_files.h"
#include "fp8/chat/pack.h"

namespace fp8::chat {
namespace {

using Ids = std::vector<std::uint32_t>;
using Spans = std::vector<std::pair<std::size_t, std::size_t>>;

const std::vector<std::string> kFormats = {"alpaca", "sharegpt", "openai"};

std::string data_file(const std::string& format) {
  return golden("data/" + format + (format == "alpaca" ? ".json" : ".jsonl"));
}

// The conversations of a file as pairs of ids.
std::vector<std::vector<Pair>> rendered(const Renderer& renderer, const token::Tokenizer& tokenizer,
                                        const std::string& format) {
  token::Encoder encoder(tokenizer);
  std::vector<std::vector<Pair>> all;
  json::RecordReader reader(data_file(format), json::Layout::by_content);
  while (const std::optional<json::Record> record = reader.next()) {
    const json::Value value = json::parse(*record, reader.name());
    const std::optional<Schema> schema = guess_schema(value, {});
    EXPECT_TRUE(schema.has_value());
    all.push_back(renderer.render(read_conversation(value, *schema), encoder));
  }
  return all;
}

Ids ids_of(const json::Object& record, const char* key) {
  Ids ids;
  for (const json::Value& id : record.get_array(key, "record")) ids.push_back(static_cast<std::uint32_t>(id.as_int()));
  return ids;
}

Spans spans_in(const json::Object& record) {
  Spans spans;
  for (const json::Value& span : record.get_array("trained", "record")) {
    spans.emplace_back(span.as_array().at(0).as_uint(), span.as_array().at(1).as_uint());
  }
  return spans;
}

std::vector<json::Value> records_of(const std::string& path) {
  json::LineReader lines(path);
  std::vector<json::Value> all;
  while (std::optional<json::Value> record = lines.next()) all.push_back(std::move(*record));
  return all;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  const std::string form_ = GetParam();
  token::Tokenizer tokenizer_{golden(form_)};
  Renderer renderer_{read_template("share/templates/" + form_ + ".json"), tokenizer_};
};

TEST_P(Golden, documents_of_all_formats_masks_and_cutoffs) {
  for (const std::string& format : kFormats) {
    const std::vector<std::vector<Pair>> all = rendered(renderer_, tokenizer_, format);
    for (const char* mode : {"assistant", "last", "all"}) {
      for (const std::size_t cutoff : {128, 2048}) {
        const std::string path = golden(form_ + "/" + format + "-" + mode + "-" + std::to_string(cutoff) + ".jsonl");
        SCOPED_TRACE(path);
        const std::vector<json::Value> wanted = records_of(path);
        ASSERT_EQ(all.size(), wanted.size());
        ASSERT_GE(wanted.size(), 12U);
        for (std::size_t i = 0; i < all.size(); ++i) {
          const Document document = assemble(all[i], parse_mask(mode).value(), cutoff);
          EXPECT_EQ(document.ids, ids_of(wanted[i].as_object(), "ids")) << i;
          EXPECT_EQ(spans_of(document.mask), spans_in(wanted[i].as_object())) << i;
        }
      }
    }
  }
}

TEST_P(Golden, packed_sequences_in_order) {
  std::vector<Row> rows;
  Packer packer(256, renderer_.padding(), [&](Row row) { rows.push_back(std::move(row)); });
  for (const std::string& format : kFormats) {
    for (const std::vector<Pair>& pairs : rendered(renderer_, tokenizer_, format)) {
      packer.add(assemble(pairs, Mask::assistant, 255));
    }
  }
  packer.finish();
  const std::vector<json::Value> wanted = records_of(golden(form_ + "/packed-256.jsonl"));
  ASSERT_EQ(rows.size(), wanted.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json::Object& record = wanted[i].as_object();
    EXPECT_EQ(rows[i].ids, ids_of(record, "ids")) << i;
    EXPECT_EQ(spans_of(rows[i].mask), spans_in(record)) << i;
    EXPECT_EQ(Ids(rows[i].lengths.begin(), rows[i].lengths.end()), ids_of(record, "lengths")) << i;
    EXPECT_EQ(rows[i].padding, record.at("padding").as_uint()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::Values("llama2", "llama3", "mistral", "qwen"));

}  // namespace
}  // namespace fp8::chat
