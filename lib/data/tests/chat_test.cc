// Conversations into token files: masks, packed sequences, shares, and bad records.
#include "fp8/data/chat.h"

#include <gtest/gtest.h>

#include "fp8/data/sampler.h"
#include "fp8_test.h"

namespace fp8::data {
namespace {

using test::error_of;
using Ids = std::vector<std::int32_t>;

const std::string kGolden = "tests/golden/chat/";

std::string record(const std::string& user, const std::string& answer) {
  return R"({"messages":[{"role":"user","content":")" + user + R"("},{"role":"assistant","content":")" + answer +
         "\"}]}\n";
}

class ChatFile : public test::FolderTest {
 protected:
  ChatOptions options(std::vector<std::string> inputs) {
    ChatOptions o;
    o.inputs = std::move(inputs);
    o.tokenizer = &tokenizer_;
    o.form = chat::read_template("share/templates/llama3.json");
    o.note = o.guessed = [this](const std::string& text) { notes_.push_back(text); };
    return o;
  }
  ChatFiles files(bool dry = false) {
    return {.output = at("out.h5"), .vocab_size = tokenizer_.vocab_size(), .force = true, .dry_run = dry};
  }
  std::string refusal(const ChatOptions& o) {
    const std::vector<std::string> before = names();
    std::string message = error_of([&] { tokenize_conversations(o, files()); });
    EXPECT_EQ(names(), before) << "something was left behind";
    return message;
  }

  token::Tokenizer tokenizer_{kGolden + "llama3"};
  std::vector<std::string> notes_;
};

TEST_F(ChatFile, documents_and_masks_are_those_of_the_rows) {
  ChatOptions o = options({kGolden + "data/alpaca.json", kGolden + "data/openai.jsonl"});
  o.mask = chat::Mask::all;
  o.cutoff = 128;
  Ids ids, mask, bounds = {0};
  read_conversations(o, [&](const chat::Row& row, bool) {
    ids.insert(ids.end(), row.ids.begin(), row.ids.end());
    mask.insert(mask.end(), row.mask.begin(), row.mask.end());
    bounds.push_back(static_cast<std::int32_t>(ids.size()));
  });
  const ChatSummary made = tokenize_conversations(o, files()).train;
  const TokenFile file(at("out.h5"), true);
  EXPECT_EQ(made.documents, 25);
  EXPECT_EQ(file.info().documents, 25);
  EXPECT_TRUE(file.info().mask);
  EXPECT_EQ(made.tokens, static_cast<std::int64_t>(ids.size()));
  EXPECT_EQ(made.targets, made.tokens - 25) << "all but the first token of each document";
  Ids read(ids.size());
  file.read(0, read);
  EXPECT_EQ(read, ids);
  std::vector<std::uint8_t> counts(ids.size());
  file.read_mask(0, counts);
  EXPECT_EQ(Ids(counts.begin(), counts.end()), mask);
  EXPECT_EQ(file.documents(), std::vector<std::int64_t>(bounds.begin(), bounds.end()));
}

TEST_F(ChatFile, packed_sequences_are_samples) {
  ChatOptions o = options({kGolden + "data/openai.jsonl"});
  o.pack = 256;
  std::vector<chat::Row> rows;
  read_conversations(o, [&](const chat::Row& row, bool) { rows.push_back(row); });
  const ChatSummary made = tokenize_conversations(o, files()).train;
  const TokenFile file(at("out.h5"), true);
  EXPECT_EQ(file.info().sequence_length, 256);
  EXPECT_EQ(made.sequences, static_cast<std::int64_t>(rows.size()));
  EXPECT_EQ(file.info().documents, made.documents + made.sequences) << "padding is a document of its own";
  const Sampler sampler(file, SamplerKind::sequential, 0, 256, 1, DocumentMode::automatic);
  EXPECT_EQ(sampler.samples(), made.sequences);
  Ids inputs(256), targets(256), starts(256);
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    sampler.sample(static_cast<std::int64_t>(i), inputs, targets, starts);
    Ids expected;
    for (const std::size_t length : rows[i].lengths)
      expected.insert(expected.end(), length, static_cast<std::int32_t>(expected.size()));
    expected.resize(256, static_cast<std::int32_t>(expected.size()));
    EXPECT_EQ(starts, expected) << "padding is a document of its own";
    EXPECT_EQ(inputs, Ids(rows[i].ids.begin(), rows[i].ids.end()));
    EXPECT_EQ(targets.back(), kIgnoredTarget);
    for (std::size_t t = 0; t + 1 < 256; ++t) {
      EXPECT_EQ(targets[t], rows[i].mask[t + 1] != 0 ? inputs[t + 1] : kIgnoredTarget);
    }
    counted += 256 - std::ranges::count(targets, kIgnoredTarget);
  }
  EXPECT_EQ(counted, made.targets);
  EXPECT_HOLDS(error_of([&] { Sampler(file, SamplerKind::sequential, 0, 128, 1, DocumentMode::joined); }),
               "sequence length 128, but " + at("out.h5") + " holds packed sequences of 256 tokens");
}

TEST_F(ChatFile, a_share_is_for_evaluation) {
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += record(std::to_string(i), "x");
  ChatOptions o = options({write("x.jsonl", lines)});
  o.eval_share = 0.1;
  ChatFiles to = files();
  to.eval_output = at("eval.h5");
  const auto [train, eval] = tokenize_conversations(o, to);
  EXPECT_EQ(train.documents, 180);
  EXPECT_EQ(eval.documents, 20);
  EXPECT_EQ(TokenFile(at("out.h5"), true).info().documents, 180);
  EXPECT_EQ(TokenFile(at("eval.h5"), true).info().documents, 20);
  for (const double share : {0.03, 0.3, 0.5, 0.75, 0.9}) {
    o.eval_share = share;
    const ChatSummaries made = read_conversations(o, [](const chat::Row&, bool) {});
    EXPECT_EQ(made.train.documents + made.eval.documents, 200) << share;
    EXPECT_NEAR(static_cast<double>(made.eval.documents), 200 * share, 1) << share;
  }
  o.inputs = {write("one.jsonl", record("a", "b"))};
  o.eval_share = 0.01;
  EXPECT_HOLDS(error_of([&] { tokenize_conversations(o, to); }), "no document is left for this file");
}

TEST_F(ChatFile, inputs_may_have_columns_of_their_own) {
  const std::string talk = R"({"m":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})",
                    pair = R"({"q":"a","output":"b"})", same = record("a", "b");
  std::vector<std::vector<std::uint32_t>> ids;
  const auto keep = [&](const chat::Row& row, bool) { ids.push_back(row.ids); };
  ChatOptions o = options({write("t.jsonl", talk), write("p.jsonl", pair), write("s.jsonl", same)});
  o.columns = {chat::Columns("format=sharegpt,messages=m"), chat::Columns("prompt=q"), {}};
  EXPECT_EQ(read_conversations(o, keep).train.documents, 3);
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[0], ids[2]);
  EXPECT_EQ(ids[1], ids[2]);
  o.columns.pop_back();
  EXPECT_EQ(refusal(o), "3 inputs, but columns for 2");
}

TEST_F(ChatFile, the_first_records_of_each_input) {
  ChatOptions o = options({kGolden + "data/alpaca.json", kGolden + "data/openai.jsonl"});
  o.max_records = 3;
  EXPECT_EQ(tokenize_conversations(o, files()).train.records, 6);
  o.inputs.emplace_back("tests/golden/chat/data/dataset_info.json");
  EXPECT_HOLDS(refusal(o), "dataset_info.json: describes datasets of LLaMA-Factory and holds none");
  o.inputs.pop_back();
  o.max_records = 100;
  EXPECT_EQ(tokenize_conversations(o, files()).train.records, 25);
}

TEST_F(ChatFile, bad_records_are_errors_or_left_out) {
  const std::string good = record("a", "b");
  ChatOptions o = options({write("x.jsonl", good + "{\n" + good + "[]\n" + good)});
  EXPECT_HOLDS(refusal(o), "x.jsonl: line 2 column 2: ");
  o.skip_bad = 0.4;
  const ChatSummary made = tokenize_conversations(o, files()).train;
  EXPECT_EQ(made.records, 5);
  EXPECT_EQ(made.documents, 3);
  EXPECT_EQ(made.dropped,
            (std::map<std::string, std::int64_t>{{"not valid JSON", 1}, {"the record is not an object", 1}}));
  EXPECT_HOLDS(notes_.back(), "x.jsonl: line 4: the record is not an object; left out");
  o.skip_bad = 0.3;
  EXPECT_HOLDS(refusal(o),
               "2 of 5 records are bad, more than the share that may be left out; the first: " + at("x.jsonl: line 2"));
  o.skip_bad = 1;
  o.inputs = {write("y.jsonl", "1\n{}\n")};
  EXPECT_EQ(
      refusal(o),
      at("y.jsonl") + ": no conversation is left, all 2 records were left out; the first: the record is not an object");
  o.inputs = {write("z.jsonl", "\n")};
  EXPECT_EQ(refusal(o), at("z.jsonl") + ": no records");
  o.inputs = {at("z.jsonl"), at("z.jsonl")};
  EXPECT_EQ(refusal(o), "the inputs: no records");
}

TEST_F(ChatFile, every_bad_record_of_the_reference_is_named_and_can_be_left_out) {
  json::LineReader cases(kGolden + "data/bad.jsonl");
  int count = 0;
  while (const std::optional<json::Value> value = cases.next()) {
    const json::Object& bad = value->as_object();
    const std::string path = kGolden + "data/bad/" + bad.get_string("file", "bad");
    SCOPED_TRACE(path);
    ChatOptions o = options({path});
    const bool whole = bad.at("line").is_null();
    const std::string message = refusal(o);
    EXPECT_TRUE(message.starts_with(path + ": " + (whole ? "" : "line " + std::to_string(bad.at("line").as_int()))))
        << message;
    o.skip_bad = 1;
    if (whole) {
      EXPECT_EQ(refusal(o), message) << "a damaged file is always an error";
    } else {
      EXPECT_EQ(read_conversations(o, [](const chat::Row&, bool) {}).train.documents, 2);
    }
    ++count;
  }
  EXPECT_EQ(count, 24);
}

TEST_F(ChatFile, too_long_conversations) {
  ChatOptions o = options({write("x.jsonl", record("a", "b") + record(std::string(500, 'x'), "b"))});
  o.cutoff = 100;
  EXPECT_EQ(tokenize_conversations(o, files()).train.cut, 1);
  o.too_long = TooLong::drop;
  const ChatSummary made = tokenize_conversations(o, files()).train;
  EXPECT_EQ(made.documents, 1);
  EXPECT_EQ(made.dropped.at("too long"), 1);
  o.too_long = TooLong::error;
  EXPECT_HOLDS(refusal(o), "x.jsonl: line 2: 5");
  EXPECT_HOLDS(refusal(o), " tokens, more than 100");
  o.pack = 50;
  EXPECT_HOLDS(refusal(o), "more than 49");
  o.too_long = TooLong::drop;
  o.cutoff = o.pack = 2;
  EXPECT_HOLDS(refusal(o), "no conversation is left, all 2 records were left out; the first: too long");
  o.cutoff = 0;
  EXPECT_EQ(refusal(o), "a cutoff needs at least 1 token");
}

TEST_F(ChatFile, the_format_is_guessed_and_noted) {
  const std::string sharegpt = R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})";
  ChatOptions o = options({write("x", "{}\n" + sharegpt)});
  o.skip_bad = 0.5;
  tokenize_conversations(o, files());
  ASSERT_EQ(notes_.size(), 2U);
  EXPECT_EQ(notes_[0], at("x") + ": read as sharegpt, column \"conversations\"");
  EXPECT_EQ(notes_[1], at("x") + ": line 1: \"conversations\" is missing; left out");
  o.skip_bad = 0;
  o.format = chat::Format::messages;
  EXPECT_EQ(refusal(o), at("x") + ": line 1: \"messages\" is missing");
  o.inputs = {write("y", R"({"text":"a"})")};
  o.format.reset();
  EXPECT_EQ(refusal(o), at("y") + ": line 1: none of the columns of alpaca, sharegpt and messages, but \"text\"");
}

TEST_F(ChatFile, order_and_errors_do_not_depend_on_threads) {
  std::string lines;
  for (int i = 0; i < 20000; ++i) lines += record(std::to_string(i), std::to_string(i));
  ChatOptions o = options({write("x.jsonl", lines)});
  token::Encoder encoder(tokenizer_);
  int number = 0;
  read_conversations(o, [&](const chat::Row& row, bool) {
    std::vector<std::uint32_t> ids;
    encoder.encode(std::to_string(number++), false, ids);
    EXPECT_TRUE(std::search(row.ids.begin(), row.ids.end(), ids.begin(), ids.end()) != row.ids.end()) << number;
  });
  EXPECT_EQ(number, 20000);
  o.inputs = {write("x.jsonl", lines + "{}\n" + lines + "[\n")};
  EXPECT_EQ(refusal(o), at("x.jsonl") + ": line 20001: \"messages\" is missing");
}

TEST_F(ChatFile, hostile_inputs) {
  const std::string deep = R"({"messages":)" + std::string(100000, '[') + std::string(100000, ']') + "}\n";
  EXPECT_HOLDS(refusal(options({write("deep.jsonl", deep)})), "deep.jsonl: line 1 column ");
  EXPECT_HOLDS(refusal(options({write("twice.jsonl", R"({"messages":[],"messages":[]})")})), "duplicate key");
  EXPECT_HOLDS(refusal(options({write("p.parquet", "PAR1" + deep)})),
               "a Parquet file; make JSON Lines of it: python3 -c");
  EXPECT_HOLDS(refusal(options({write("z.jsonl", "\x1f\x8b\x08 and so on")})),
               "compressed by gzip; give the output of gzip -dc");
  EXPECT_HOLDS(refusal(options({at("none")})), "none");
  EXPECT_EQ(refusal(options({})), "no input");
  EXPECT_EQ(refusal(options({"-", "-"})), "standard input: can be read only once");
  ChatOptions same = options({write("out.h5", record("a", "b"))});
  EXPECT_EQ(refusal(same), at("out.h5") + ": is also an input");
  ChatOptions o = options({write("x.jsonl", record("a", "b"))});
  ChatFiles small = files();
  small.vocab_size = 300;
  EXPECT_HOLDS(error_of([&] { tokenize_conversations(o, small); }),
               "the tokenizer gives the id 2000, which is not below the vocabulary size 300");
}

TEST_F(ChatFile, reading_ends_when_no_more_documents_are_wanted) {
  ChatOptions o = options({write("x.jsonl", record("a", "b") + record("c", "d") + "{\n")});
  std::vector<std::uint64_t> lines;
  o.document = [&](const chat::Document&, const Origin& origin) {
    lines.push_back(origin.line);
    return lines.size() < 2;
  };
  read_conversations(o, [](const chat::Row&, bool) {});
  EXPECT_EQ(lines, (std::vector<std::uint64_t>{1, 2}));
}

}  // namespace
}  // namespace fp8::data
