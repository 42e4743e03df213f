// Records of arrays and of lines, split without being parsed.
#include "fp8/json/records.h"

#include <gtest/gtest.h>

#include "fp8_test.h"

namespace fp8::json {
namespace {

using test::error_of;

class Records : public test::FolderTest {
 protected:
  // The records as `line:text|...`.
  std::string read(std::string_view bytes, Layout layout = Layout::by_content, const std::string& name = "x.json") {
    RecordReader reader(write(name, bytes), layout);
    std::string all;
    while (const std::optional<Record> record = reader.next()) {
      all += std::to_string(record->line) + ":" + record->text + "|";
    }
    EXPECT_FALSE(reader.next().has_value()) << "the end stays";
    return all;
  }
  std::string refusal(std::string_view bytes) {
    const std::string message = error_of([&] { read(bytes, Layout::array); });
    return message.substr(std::min(message.size(), at("x.json: ").size()));
  }
};

TEST_F(Records, elements_of_an_array) {
  EXPECT_EQ(read("[]"), "");
  EXPECT_EQ(read(" [ \n ] \n"), "");
  EXPECT_EQ(read("[1]"), "1:1|");
  EXPECT_EQ(read("[\n{\"a\":[1,\"]}\\\"\"]}\n,\n\n\"x,\\\\\", null ,{\n}]\n"),
            "2:{\"a\":[1,\"]}\\\"\"]}|5:\"x,\\\\\"|5:null|5:{\n}|");
}

TEST_F(Records, arrays_that_are_refused) {
  EXPECT_EQ(refusal(""), "line 1: not a JSON array");
  EXPECT_EQ(refusal("\n{}"), "line 2: not a JSON array");
  EXPECT_EQ(refusal("["), "line 1: the JSON array has no end");
  EXPECT_EQ(refusal("[1"), "line 1: the JSON array ends in the middle of the record that begins here");
  EXPECT_EQ(refusal("[1 "), "line 1: the JSON array has no end");
  EXPECT_EQ(refusal("[1,\n"), "line 2: the JSON array has no end");
  EXPECT_EQ(refusal("[1,]"), "line 1: an element of the JSON array is missing");
  EXPECT_EQ(refusal("[,1]"), "line 1: an element of the JSON array is missing");
  EXPECT_EQ(refusal("[{}\n{}]"), "line 2: no comma between two elements of the JSON array");
  EXPECT_EQ(refusal("[{}\n]]"), "line 2: more text after the end of the JSON array");
  EXPECT_EQ(refusal("[{},\n{\"a\":\n\""), "line 2: the JSON array ends in the middle of the record that begins here");
}

TEST_F(Records, the_layout_is_found_by_content) {
  EXPECT_EQ(read("{}\n[1]\n", Layout::by_content), "1:{}|2:[1]|");
  EXPECT_EQ(read("[1]\n", Layout::by_content, "x.jsonl"), "1:[1]|");
  EXPECT_EQ(read("[{}]\n", Layout::by_content, "x.jsonl"), "1:{}|");
  EXPECT_EQ(read("[\n", Layout::lines), "1:[|");
  EXPECT_EQ(read("\xEF\xBB\xBF{}\n", Layout::by_content), "1:{}|");
  EXPECT_EQ(read("\xEF\xBB\xBF[{}]\n", Layout::by_content, "x.jsonl"), "1:{}|");
  EXPECT_EQ(error_of([&] { read("\xEF\xBB\xBF\xEF\xBB\xBF{}\n"); }),
            at("x.json") + ": line 1 column 1: a second byte order mark");
  EXPECT_TRUE(begins_array("\xEF\xBB\xBF[{", "x"));
  EXPECT_FALSE(begins_array("", "x.json"));
  EXPECT_TRUE(begins_array("\n[", "x"));
}

TEST_F(Records, long_records_and_many) {
  std::string bytes = "[";
  for (int i = 0; i < 3000; ++i) {
    bytes += (i == 0 ? "\"" : ",\"") + std::string(static_cast<std::size_t>(i), 'a') + "\"";
  }
  RecordReader reader(write("x", bytes + "]"), Layout::array);
  EXPECT_EQ(reader.head().size(), 65536U);
  std::size_t count = 0;
  for (std::vector<Record> batch = reader.next_batch(10000); !batch.empty(); batch = reader.next_batch(10000)) {
    for (const Record& record : batch) EXPECT_EQ(record.text.size(), count++ + 2);
  }
  EXPECT_EQ(count, 3000U);
}

TEST_F(Records, the_first_ones_alone) {
  for (const char* text : {"1\n2\n3\n", "[1,2,3", "1\n2"}) {
    RecordReader reader(write("x.json", text), Layout::by_content);
    reader.end_after(2);
    EXPECT_EQ(reader.next_batch(1).size(), 1u);
    EXPECT_EQ(reader.next_batch(100).size(), 1u);
    EXPECT_TRUE(reader.next_batch(100).empty()) << "what follows is not read";
  }
}

TEST_F(Records, records_before_an_error_are_returned_first) {
  RecordReader reader(write("x", "[1,2,,"), Layout::array);
  EXPECT_EQ(reader.next_batch(100).size(), 2U);
  EXPECT_HOLDS(error_of([&] { reader.next_batch(100); }), "x: line 1: an element of the JSON array is missing");
}

}  // namespace
}  // namespace fp8::json
