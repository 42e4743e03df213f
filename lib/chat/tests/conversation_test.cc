// Records of the three formats, with every mistake that has a reason of its own.
#include <gtest/gtest.h>

#include "chat_files.h"

namespace fp8::chat {
namespace {

using test::error_of;

std::string refusal(std::string_view record, const Columns& columns = {}) {
  return error_of([&] { conversation_of(record, columns); });
}

// The turns as `user>answer|...`, with the system prompt and a colon in front.
std::string shown(const Conversation& conversation) {
  std::string out = conversation.system + ":";
  for (const Turn& turn : conversation.turns) out += turn.user + ">" + turn.answer + "|";
  return out;
}

TEST(Conversation, alpaca_joins_instruction_and_input) {
  EXPECT_EQ(shown(conversation_of(R"({"instruction":"a","input":"b","output":"c"})")), ":a\nb>c|");
  EXPECT_EQ(shown(conversation_of(R"({"instruction":"","input":"b","output":"c"})")), ":b>c|");
  EXPECT_EQ(shown(conversation_of(R"({"instruction":"a","input":null,"output":""})")), ":a>|");
  EXPECT_EQ(shown(conversation_of(R"({"instruction":"","output":"c"})")), ":>c|");
  EXPECT_EQ(shown(conversation_of(
                R"({"instruction":" a ","input":"\n","output":"c","system":"s","history":[["u","v"],["",""]]})")),
            "s:u>v|>| a \n\n>c|");
  EXPECT_EQ(shown(conversation_of(R"({"input":"b","output":"c","system":null,"history":null})")), ":b>c|");
}

TEST(Conversation, a_system_message_overrides_the_column) {
  EXPECT_EQ(
      shown(conversation_of(
          R"({"system":"x","conversations":[{"from":"system","value":"s"},{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})")),
      "s:a>b|");
  EXPECT_EQ(
      shown(conversation_of(
          R"({"system":"x","conversations":[{"from":"system","value":""},{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})")),
      ":a>b|");
  EXPECT_EQ(shown(conversation_of(
                R"({"system":"x","conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})")),
            "x:a>b|");
  const std::string openai =
      R"({"system":"x","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})";
  EXPECT_EQ(shown(conversation_of(openai)), ":a>b|") << "messages have no column for it";
  EXPECT_EQ(shown(conversation_of(openai, Columns("system=system"))), "x:a>b|") << "unless one is named";
}

TEST(Conversation, formats_are_guessed_from_the_keys) {
  const auto format = [](std::string_view record, const Columns& columns = {}) {
    const std::optional<Schema> schema = guess_schema(json::parse(record, "r"), columns);
    return schema ? std::string(name_of(schema->format)) + " " + schema->messages : "none";
  };
  EXPECT_EQ(format(R"({"messages":[]})"), "messages messages");
  EXPECT_EQ(format(R"({"conversations":[]})"), "sharegpt conversations");
  EXPECT_EQ(format(R"({"conversations":[{"role":"user"}]})"), "messages conversations");
  EXPECT_EQ(format(R"({"messages":[{"from":"human"}]})"), "sharegpt messages");
  EXPECT_EQ(format(R"({"messages":1,"output":""})"), "messages messages");
  EXPECT_EQ(format(R"({"output":""})"), "alpaca conversations");
  EXPECT_EQ(format(R"({"text":""})"), "none");
  EXPECT_EQ(format(R"([])"), "none");
  EXPECT_EQ(format(R"({"chat":[{"role":"user"}]})", Columns("messages=chat")), "messages chat");
  EXPECT_EQ(format(R"({"q":""})", Columns("prompt=q")), "alpaca conversations");
}

TEST(Conversation, columns_and_roles_can_be_named) {
  const Columns alpaca("prompt=q,query=x,response=a,history=h,system=s");
  EXPECT_EQ(shown(conversation_of(R"({"q":"1","x":"2","a":"3","h":[["4","5"]],"s":"6"})", alpaca)), "6:4>5|1\n2>3|");
  const Columns roles("messages=m,role_tag=r,content_tag=c,user_tag=U,assistant_tag=A,system_tag=S");
  EXPECT_EQ(shown(conversation_of(R"({"m":[{"r":"S","c":"s"},{"r":"U","c":"a"},{"r":"A","c":"b"}]})", roles)),
            "s:a>b|");
  EXPECT_HOLDS(error_of([] { Columns("promt=q"); }), "columns: \"promt\" is not a name (prompt, query, ");
  EXPECT_HOLDS(error_of([] { Columns("prompt"); }), "is not NAME=COLUMN");
  EXPECT_HOLDS(error_of([] { Columns("response="); }), "\"response=\" names nothing, but response is needed");
}

TEST(Conversation, columns_can_name_the_format) {
  EXPECT_EQ(Columns("messages=m,format=sharegpt").format(), Format::sharegpt);
  EXPECT_FALSE(Columns("messages=m").format().has_value());
  EXPECT_EQ(error_of([] { Columns("format=openai"); }),
            "columns: \"format=openai\" is not a format (alpaca, sharegpt, messages)");
}

TEST(Conversation, columns_can_be_left_out) {
  const Columns less("query=,history=,system=");
  EXPECT_EQ(shown(conversation_of(R"({"instruction":"1","input":"2","output":"3","history":[["4","5"]],"system":"6"})",
                                  less)),
            ":1>3|");
  EXPECT_EQ(shown(conversation_of(
                R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}],"system":"s"})", less)),
            ":a>b|");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"system","content":"s"}]})", Columns("system_tag=")),
            "message 1: the role \"system\" is not known (user and assistant are)");
}

TEST(Conversation, alpaca_records_that_are_refused) {
  EXPECT_EQ(refusal(R"({"output":"b"})"), R"(both "instruction" and "input" are missing)");
  EXPECT_EQ(refusal(R"({"instruction":null,"output":"b"})"), R"(both "instruction" and "input" are missing)");
  EXPECT_EQ(refusal(R"({"instruction":"a"})"), R"("output" is missing)");
  EXPECT_EQ(refusal(R"({"instruction":"a","output":null})"), R"("output" is null)");
  EXPECT_EQ(refusal(R"({"instruction":"a","output":4})"), R"("output" is not a string, but integer)");
  EXPECT_EQ(refusal(R"({"instruction":["a"],"output":"b"})"), R"("instruction" is not a string, but array)");
  EXPECT_EQ(refusal(R"({"instruction":"a","input":{},"output":"b"})"), R"("input" is not a string, but object)");
  EXPECT_EQ(refusal(R"({"instruction":"a","output":"b","system":1.5})"), R"("system" is not a string, but number)");
  EXPECT_EQ(refusal(R"({"instruction":"a","output":"b","history":"c"})"), R"("history" is not a list)");
  EXPECT_EQ(refusal(R"({"instruction":"a","output":"b","history":[["c","d"],["e"]]})"),
            R"("history" entry 2 is not a [user, assistant] pair)");
  EXPECT_EQ(refusal(R"({"instruction":"a","output":"b","history":[["c",null]]})"),
            R"("history" entry 1 is not a string, but null)");
  EXPECT_EQ(refusal("[1]"), "the record is not an object");
}

std::string messages(const std::string& list) { return R"({"messages":[)" + list + "]}"; }

TEST(Conversation, messages_that_are_refused) {
  const std::string user = R"({"role":"user","content":"a"})", answer = R"({"role":"assistant","content":"b"})",
                    system = R"({"role":"system","content":"s"})";
  EXPECT_EQ(refusal(messages("")), R"("messages" has no turns)");
  EXPECT_EQ(refusal(messages(system)), R"("messages" has a system prompt, but no turns)");
  EXPECT_EQ(refusal(messages(answer + "," + user)), "message 1: the first turn is not the user's");
  EXPECT_EQ(refusal(messages(system + "," + answer)), "message 2: the first turn is not the user's");
  EXPECT_EQ(refusal(messages(user + "," + user)), "message 2: user and assistant do not alternate");
  EXPECT_EQ(refusal(messages(user + "," + answer + "," + answer)), "message 3: user and assistant do not alternate");
  EXPECT_EQ(refusal(messages(user)), "the last turn is the user's: there is no answer to learn");
  EXPECT_EQ(refusal(messages(user + "," + system + "," + answer)),
            "message 2: a system message after the first message");
  EXPECT_EQ(refusal(messages(system + "," + system)), "message 2: a system message after the first message");
  EXPECT_HOLDS(refusal(messages(R"({"role":"\u001b[31mtool","content":"a"})")),
               R"(the role "\x1b[31mtool" is not known)");
  EXPECT_EQ(refusal(messages(R"({"content":"a"})")), R"(message 1: "role" is missing)");
  EXPECT_EQ(refusal(messages(R"({"role":7,"content":"a"})")), R"(message 1: "role" is not a string, but integer)");
  EXPECT_EQ(refusal(messages(user + R"(,{"role":"assistant"})")), R"(message 2: "content" is missing)");
  EXPECT_EQ(refusal(messages(user + R"(,{"role":"assistant","content":null})")), R"(message 2: "content" is null)");
  EXPECT_EQ(refusal(messages(R"({"role":"user","content":[{"type":"text"}]})")),
            R"(message 1: "content" is not a string, but array; join the texts of its parts into one string)");
  EXPECT_EQ(refusal(messages("1")), "message 1: is not an object");
  EXPECT_EQ(refusal(R"({"messages":null})"), R"("messages" is null)");
  EXPECT_EQ(refusal(R"({"messages":{}})"), R"("messages" is not a list)");
}

TEST(Conversation, pictures_and_sounds_are_refused) {
  const std::string turns = R"("messages":[{"role":"user","content":"<image>a"},{"role":"assistant","content":"b"}])";
  for (const char* key : {"images", "image", "videos", "video", "audios", "audio"}) {
    const std::string name = std::string("\"") + key + "\"", reason = "has " + name + ", but only text is read";
    EXPECT_EQ(refusal("{" + turns + "," + name + R"(:["1.jpg"]})"), "the record " + reason);
    EXPECT_EQ(refusal("{" + turns + "," + name + R"(:"1.jpg"})"), "the record " + reason);
    EXPECT_EQ(refusal(R"({"instruction":"a","output":"b",)" + name + R"(:{"path":"1.jpg"}})"), "the record " + reason);
    EXPECT_EQ(refusal(messages(R"({"role":"user","content":"a",)" + name + R"(:["1.jpg"]})")), "message 1: " + reason);
    for (const char* none : {"[]", "null", "\"\"", "{}", "false"})
      EXPECT_EQ(conversation_of("{" + turns + "," + name + ":" + none + "}").turns.size(), 1U);
  }
  EXPECT_EQ(refusal(messages(R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]})")),
            R"(message 1: "content" has a part of type "image_url", but only text is read)");
}

TEST(Conversation, what_else_a_record_states_is_named_once) {
  const auto ignored = [](const std::string& members, const std::string& of_answer = "", const Columns& columns = {}) {
    std::string all;
    for (const std::string& text :
         conversation_of(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b")" + of_answer +
                             "}]" + members + "}",
                         columns)
             .ignored)
      all += text + "|";
    return all;
  };
  EXPECT_EQ(ignored(""), "");
  EXPECT_EQ(ignored(R"(,"id":7,"source":"x","tools":"[]","label":true)"), "");
  EXPECT_EQ(ignored(R"(,"tools":[{}],"functions":[1])"), R"("tools" is not rendered|"functions" is not rendered|)");
  EXPECT_EQ(ignored(R"(,"rejected":"c")"), R"("rejected" is not used: preferences are not learned|)");
  EXPECT_EQ(ignored(R"(,"label":false)"), R"("label" is false, but the answer is trained|)");
  EXPECT_EQ(ignored(R"(,"kto_tag":false)"), R"("kto_tag" is false, but the answer is trained|)");
  EXPECT_EQ(ignored(R"(,"label":false)", R"(,"weight":0)"), "");
  const json::Value question = json::parse(R"({"messages":[{"role":"user","content":"a"}],"label":false})", "r");
  EXPECT_TRUE(read_question(question, *guess_schema(question, {})).ignored.empty());
  EXPECT_EQ(ignored("", R"(,"tool_calls":[{}],"reasoning_content":"c")"),
            R"("tool_calls" is not rendered|"reasoning_content" is not rendered|)");
  EXPECT_EQ(ignored("", R"(,"train_detail":[{}])"), R"("train_detail" is not used: all of the message counts|)");
  const Columns chosen("messages=chosen");
  EXPECT_EQ(conversation_of(R"({"chosen":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})", chosen)
                .ignored.size(),
            0U);
}

TEST(Conversation, messages_that_do_not_count) {
  const auto counts = [](const std::string& of_user, const std::string& of_answer) {
    const Conversation c = conversation_of(messages(R"({"role":"user","content":"a")" + of_user +
                                                    R"(},{"role":"assistant","content":"b")" + of_answer + "}"));
    return std::string(c.turns[0].user_counts ? "user " : "") + (c.turns[0].answer_counts ? "answer " : "") +
           (c.ignored.empty() ? "" : c.ignored[0]);
  };
  for (const char* key : {"loss", "weight", "train", "training", "loss_weight", "loss_scale", "train_on_turn"}) {
    const std::string name = std::string(",\"") + key + "\":";
    for (const char* no : {"false", "0", "0.0"}) EXPECT_EQ(counts(name + no, name + no), "") << key << no;
    for (const char* yes : {"true", "1", "1.0", "null"})
      EXPECT_EQ(counts("", name + yes), "user answer ") << key << yes;
    EXPECT_EQ(refusal(messages(R"({"role":"user","content":"a")" + name + "0.5}")),
              std::string("message 1: \"") + key + "\" is neither 0 nor 1, true nor false");
  }
  EXPECT_EQ(counts("", R"(,"loss":true,"weight":0)"), "user ");
  EXPECT_EQ(counts(R"(,"train":true)", ""),
            "user answer a message of the user says that it counts, as it does with --mask all alone");
}

}  // namespace
}  // namespace fp8::chat
