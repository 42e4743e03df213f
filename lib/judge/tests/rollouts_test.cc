// The forms of rollouts, and what is refused.
#include "fp8/judge/rollouts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::judge {
namespace {

using namespace test;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<Rollout> parsed(const std::string& text, ReadOptions options = {}) {
  options.vocabulary = 10;
  return parse_rollouts(json::parse(text, "record"), options);
}

// Expects the ids, log-probabilities and mask of the only rollout of a record.
void expect_rollout(const std::string& text, const std::vector<std::int32_t>& ids, const std::vector<double>& logprobs,
                    const std::vector<char>& mask, const ReadOptions& options = {}) {
  SCOPED_TRACE(text);
  const std::vector<Rollout> all = parsed(text, options);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].ids, ids);
  EXPECT_EQ(all[0].mask, mask);
  ASSERT_EQ(all[0].logprobs.size(), logprobs.size());
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    EXPECT_EQ(std::isnan(all[0].logprobs[i]), std::isnan(logprobs[i])) << i;
    if (!std::isnan(logprobs[i])) {
      EXPECT_EQ(all[0].logprobs[i], logprobs[i]) << i;
    }
  }
}

TEST(Rollouts, OfThePlainForm) {
  expect_rollout(R"({"ids":[1,2,3],"logprobs":[null,-0.5,-2]})", {1, 2, 3}, {kNone, -0.5, -2}, {1, 1, 1});
  expect_rollout(R"({"ids":[1,2],"logprobs":[null,1e-6],"mask":[false,1],"other":0})", {1, 2}, {kNone, 0}, {0, 1});
  EXPECT_EQ(parsed(R"({"ids":[1],"logprobs":[null],"temperature":0.7})")[0].temperature, 0.7);
}

// NeMo-RL pads all members to the longest sample, and a line has lists of one sample.
TEST(Rollouts, OfNemoRl) {
  const std::string line = R"({"token_ids":[[1,2,3,0]],"token_loss_mask":[[0,1,1,0]],"input_lengths":[3],)"
                           R"("generation_logprobs":[[0,-1,-2,0]],"prev_logprobs":[[0,-3,-4,0]])";
  expect_rollout(line + "}", {1, 2, 3}, {0, -1, -2}, {0, 1, 1});
  expect_rollout(line + "}", {1, 2, 3}, {0, -3, -4}, {0, 1, 1}, {.trainer = true});
  expect_rollout(line + R"(,"sample_loss_mask":[0]})", {1, 2, 3}, {0, -1, -2}, {0, 0, 0});
}

TEST(Rollouts, OfVllmCompletionsAndChat) {
  expect_rollout(
      R"({"choices":[{"prompt_token_ids":[1,2],"token_ids":[3,4],"logprobs":{"token_logprobs":[-1,-9999.0]},)"
      R"("prompt_logprobs":[null,{"2":{"logprob":-0.25},"7":{"logprob":-0.1}}]}]})",
      {1, 2, 3, 4}, {kNone, -0.25, -1, kNone}, {1, 1, 1, 1});
  const std::vector<Rollout> two =
      parsed(R"({"prompt_token_ids":[1],"choices":[{"token_ids":[3],"logprobs":{"content":[{"logprob":-1}]}},)"
             R"({"token_ids":[4,5],"logprobs":{"content":[{"logprob":-2},{"logprob":-3}]}}]})");
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[1].ids, (std::vector<std::int32_t>{1, 4, 5}));
  EXPECT_EQ(two[1].logprobs[2], -3);
}

TEST(Rollouts, OfSglang) {
  expect_rollout(R"({"text":"x","meta_info":{"prompt_tokens":2,"input_token_logprobs":[[null,1,null],[-0.5,2,null]],)"
                 R"("output_token_logprobs":[[-1.5,3,"x"]]}})",
                 {1, 2, 3}, {kNone, -0.5, -1.5}, {1, 1, 1});
  expect_rollout(R"({"input_ids":[1,2],"meta_info":{"output_token_logprobs":[[-1.5,3,"x"]]}})", {1, 2, 3},
                 {kNone, kNone, -1.5}, {1, 1, 1});
}

TEST(Rollouts, AreRefusedWithTheReason) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {R"([1])", "is not an object"},
           {R"({"ids":[10],"logprobs":[null]})", "ids: id 10 is not in the model's vocabulary of 10"},
           {R"({"ids":[-1],"logprobs":[null]})", "ids: id -1 is not in the model's vocabulary of 10"},
           {R"({"ids":[1.5],"logprobs":[null]})", "ids: an id is not an integer"},
           {R"({"ids":[1,2],"logprobs":[null]})", "logprobs: 1 values for 2 ids"},
           {R"({"ids":[1,2],"logprobs":[null,0.5]})", "logprobs: 0.5 is positive, so no log-probability"},
           {R"({"ids":[1,2],"logprobs":[null,"NaN"]})", "logprobs: a log-probability is not a number"},
           {R"({"ids":[1],"logprobs":[null],"mask":[1,1]})", "mask: 2 values for 1 ids"},
           {R"({"ids":[1],"logprobs":[null],"temperature":0})", "temperature: is not a number from 0.001 to 1000"},
           {R"({"ids":[],"logprobs":[]})", "has no ids"},
           {R"({"ids":[1]})", "has no \"logprobs\""},
           {R"({"choices":[{"token_ids":[1]}]})",
            "has no \"prompt_token_ids\"; ask vLLM with \"return_token_ids\": true"},
           {R"({"meta_info":{"prompt_tokens":3,"input_token_logprobs":[[null,1]],"output_token_logprobs":[]}})",
            "input_token_logprobs: 1 of 3 tokens of the prompt; ask SGLang with \"return_logprob\": true, "
            "\"logprob_start_len\": 0"},
           {R"({"choices":{}})", "choices: is not an array"},
           {R"({"choices":[1]})", "choices: is not an object"},
           {R"({"choices":[{"prompt_token_ids":[1],"prompt_logprobs":{},"token_ids":[]}]})",
            "prompt_logprobs: is not an array"},
           {R"({"choices":[{"prompt_token_ids":[1],"prompt_logprobs":[7],"token_ids":[]}]})",
            "prompt_logprobs: position 0: is not an object"},
           {R"({"choices":[{"prompt_token_ids":[1],"token_ids":[2],"logprobs":{"token_logprobs":0}}]})",
            "token_logprobs: is not an array"},
           {R"({"choices":[{"prompt_token_ids":[1],"token_ids":[2],"logprobs":{"content":[0]}}]})",
            "content: is not an object"},
           {R"({"meta_info":[]})", "meta_info: is not an object"},
           {R"({"input_ids":[1],"meta_info":{"output_token_logprobs":[3]}})", "output_token_logprobs: is not an array"},
           {R"({"input":"a","output":"b","score":1})",
            "has decoded text alone, so the tokens of the server cannot be known: text can be divided into tokens in "
            "several ways"},
           {R"({"a":1})", "is no rollout: it has none of ids, generation_logprobs, choices and meta_info"}})
    EXPECT_EQ(error_of([&] { parsed(text); }), reason) << text;
  EXPECT_EQ(error_of([] { parsed(R"({"ids":[1],"logprobs":[null]})", {.trainer = true}); }),
            "has the log-probabilities of one side alone, which are judged without --trainer");
}

class RolloutFiles : public FolderTest {
 protected:
  // Reads all rollouts of files.
  static std::vector<Rollout> read(const std::vector<std::string>& paths, std::int64_t sequences = 0) {
    RolloutReader reader(paths, {.vocabulary = 10, .sequences = sequences});
    std::vector<Rollout> all;
    while (std::optional<Rollout> r = reader.next()) all.push_back(std::move(*r));
    return all;
  }
};

TEST_F(RolloutFiles, FollowEachOther) {
  write("a", "{\"ids\":[1],\"logprobs\":[null]}\n\n{\"ids\":[2],\"logprobs\":[null]}\n");
  write("b", "{\"input_ids\":[3],\"meta_info\":{\"output_token_logprobs\":[]}}\n");
  const std::vector<Rollout> all = read({at("a"), at("b")});
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1].where, at("a") + ": line 3");
  EXPECT_EQ(all[2].ids, std::vector<std::int32_t>{3});
  EXPECT_EQ(read({at("a"), at("b")}, 1).size(), 1U);
}

TEST_F(RolloutFiles, AreRefusedWithFileLineAndReason) {
  write("a", "{\"ids\":[1],\"logprobs\":[null]}\n{\"ids\":[1],\"logprobs\":[0.5]}\n");
  EXPECT_EQ(error_of([&] { read({at("a")}); }), at("a") + ": line 2: logprobs: 0.5 is positive, so no log-probability");
  write("nan", "{\"ids\":[1],\"logprobs\":[NaN]}\n");
  EXPECT_EQ(error_of([&] { read({at("nan")}); }).substr(0, at("nan").size() + 15), at("nan") + ": line 1 column");
  write("empty", "\n");
  EXPECT_EQ(error_of([&] { read({at("empty")}); }), at("empty") + ": has no record");
  write("p", "PAR1abc");
  EXPECT_NE(error_of([&] { read({at("p")}); }).find(at("p") + ": is a Parquet file; convert it: python3 -c"),
            std::string::npos);
  write("pt",
        "PK\x03\x04"
        "abc");
  EXPECT_NE(error_of([&] { read({at("pt")}); }).find(": is a file of torch.save, as slime writes; convert it: python3"),
            std::string::npos);
}

}  // namespace
}  // namespace fp8::judge
