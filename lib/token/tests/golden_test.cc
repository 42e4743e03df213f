// Compares encoding and decoding with the reference values of Hugging Face tokenizers in tests/golden/tokenizers, for
// whole texts and in parts.
#include <gtest/gtest.h>

#include <map>

#include "tokenizer_files.h"

namespace fp8::token {
namespace {

using Ids = std::vector<std::uint32_t>;

// Calls `check` with each record of a JSON Lines file; expects at least `least` records.
template <class Check>
void each_record(const std::string& path, int least, Check check) {
  json::LineReader lines(path);
  int count = 0;
  while (const std::optional<json::Value> record = lines.next()) {
    SCOPED_TRACE(path + ": line " + std::to_string(lines.line()));
    check(record->as_object());
    ++count;
  }
  EXPECT_GE(count, least);
}

void check_decoded(const Tokenizer& tokenizer, const json::Object& record, const Ids& ids) {
  const std::string& decoded = record.get_string("decoded", "record");
  EXPECT_EQ(tokenizer.decode(ids, false), decoded);
  if (record.contains("text")) {
    EXPECT_EQ(tokenizer.decode(ids, true), record.get_string_or("decoded_skip_special", decoded, "record"));
  }
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, EncodesAndDecodesAsTheReference) {
  const Tokenizer tokenizer(golden(GetParam()));
  Encoder encoder(tokenizer);
  each_record(golden(GetParam()) + "/cases.jsonl", 345, [&](const json::Object& record) {
    const std::string& text = record.get_string("text", "record");
    for (int again = 0; again < 2; ++again) {  // the second time with the cache
      Ids ids;
      encoder.encode(text, true, ids);
      EXPECT_EQ(ids, ids_of(record, "ids"));
      ids.clear();
      encoder.encode(text, false, ids);
      EXPECT_EQ(ids, ids_of(record, "ids_no_special"));
    }
    check_decoded(tokenizer, record, ids_of(record, "ids_no_special"));
  });
  each_record(golden(GetParam()) + "/decode.jsonl", 91,
              [&](const json::Object& record) { check_decoded(tokenizer, record, ids_of(record, "ids")); });
}

// Encodes a text in parts of about `size` bytes; returns the ids and the number of parts.
std::pair<Ids, int> in_parts(const Tokenizer& tokenizer, std::string_view text, std::size_t size) {
  Encoder encoder(tokenizer);
  Ids ids;
  int parts = 0;
  bool first = true;
  std::size_t window = size;
  while (!text.empty()) {
    const std::optional<std::size_t> place =
        window < text.size() ? tokenizer.division(text.substr(0, window)) : std::nullopt;
    const std::size_t length = place.value_or(text.size());
    if (!place && window < text.size()) {
      window *= 2;
      continue;
    }
    if (!encoder.encode_part(text, length, {first, length == text.size()}, true, ids)) {
      window *= 2;
      continue;
    }
    text.remove_prefix(length);
    first = false;
    window = size;
    ++parts;
  }
  return {ids, parts};
}

TEST_P(Golden, PartsGiveTheIdsOfTheWholeText) {
  const Tokenizer tokenizer(golden(GetParam()));
  const std::string play = test::read_file("share/text/tinyshakespeare.txt").substr(0, 100000);
  for (const std::size_t size : {200U, 1777U}) {
    const auto [ids, parts] = in_parts(tokenizer, play, size);
    EXPECT_EQ(ids, encode(tokenizer, play));
    EXPECT_GT(parts, static_cast<int>(play.size() / size / 2));
  }
  std::string all;  // all cases in one text
  each_record(golden(GetParam()) + "/cases.jsonl", 345, [&](const json::Object& record) {
    all += record.get_string("text", "record");
    all += all.size() % 3 == 0 ? "\n" : " ";
  });
  const auto [ids, parts] = in_parts(tokenizer, all, 60);
  EXPECT_EQ(ids, encode(tokenizer, all));
  EXPECT_GT(parts, 100);
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::Values("gpt2", "llama2", "llama2-metaspace", "llama3", "qwen2"),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Applies a patch of variants.jsonl to a reference tokenizer; see tests/golden/tokenizers/README.md.
std::string patched(json::Value file, const json::Object& patch) {
  json::Object& members = file.as_object();
  for (const auto& [key, value] : patch) {
    if (key == "added") {
      json::Array& added = members["added_tokens"].as_array();
      added.insert(added.end(), value.as_array().begin(), value.as_array().end());
    } else if (key == "renamed") {
      json::Object& vocabulary = members["model"].as_object()["vocab"].as_object();
      for (const auto& [old, name] : value.as_object()) {
        const json::Value id = vocabulary.at(old);
        vocabulary.erase(old);
        vocabulary.set(name.as_string(), id);
      }
    } else if (key == "model") {
      for (const auto& [name, member] : value.as_object()) members["model"].as_object().set(name, member);
    } else {
      members.set(key, value);
    }
  }
  return json::dump(file);
}

TEST(Variants, EncodeAndDecodeAsTheReference) {
  std::map<std::string, json::Value> bases;
  each_record("tests/golden/tokenizers/variants.jsonl", 100, [&](const json::Object& variant) {
    SCOPED_TRACE(variant.get_string("name", "variant"));
    const std::string& name = variant.get_string("base", "variant");
    json::Value& base = bases[name];
    if (base.is_null()) base = json::parse_file(golden(name) + "/tokenizer.json");
    const Tokenizer tokenizer = tokenizer_of(patched(base, variant.get_object("patch", "variant")));
    std::string all;
    for (const json::Value& value : variant.get_array("cases", "variant")) {
      const json::Object& record = value.as_object();
      const std::string& text = record.get_string("text", "record");
      EXPECT_EQ(encode(tokenizer, text), ids_of(record, "ids")) << text;
      check_decoded(tokenizer, record, ids_of(record, "ids"));
      all += text + (all.size() % 2 == 0 ? "\nbut " : "and then, ");
    }
    for (const std::size_t size : {20U, 100U})
      EXPECT_EQ(in_parts(tokenizer, all, size).first, encode(tokenizer, all)) << all;
  });
}

}  // namespace
}  // namespace fp8::token
