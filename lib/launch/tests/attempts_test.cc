// attempts.json: counting, resetting, and damaged files.
#include "fp8/launch/attempts.h"

#include "folder.h"

namespace fp8::launch {
namespace {

class AttemptsTest : public FolderTest {
 protected:
  Attempts open(const std::string& job = "a") const { return {at("."), job}; }
};

TEST_F(AttemptsTest, CountsAcrossStarts) {
  Attempts first = open();
  EXPECT_EQ(first.count(), 0);
  first.begin();
  EXPECT_EQ(open().count(), 1);
  Attempts second = open();
  second.begin();
  second.failed("status 1", {"one", "two"});
  const Attempts third = open();
  EXPECT_EQ(third.count(), 2);
  EXPECT_EQ(third.how(), "status 1");
  EXPECT_EQ(third.stderr_tail(), (std::vector<std::string>{"one", "two"}));
}

TEST_F(AttemptsTest, ProgressResetsTheCount) {
  Attempts attempts = open();
  attempts.begin();
  EXPECT_FALSE(attempts.observe(0));
  EXPECT_EQ(attempts.count(), 1);
  EXPECT_TRUE(attempts.observe(4));
  EXPECT_EQ(attempts.count(), 0);
  attempts.begin();
  EXPECT_FALSE(attempts.observe(4));
  EXPECT_FALSE(attempts.observe(2));  // the newest was damaged: reaching it again is no progress
  EXPECT_FALSE(attempts.observe(4));
  EXPECT_EQ(attempts.count(), 1);
  Attempts again = open();
  EXPECT_FALSE(again.observe(4));
  EXPECT_EQ(again.count(), 1);
}

TEST_F(AttemptsTest, AnotherJobResetsTheCount) {
  open("a").begin();
  EXPECT_EQ(open("b").count(), 0);
  EXPECT_EQ(open("a").count(), 1);
}

TEST_F(AttemptsTest, ForgiveAndClear) {
  Attempts attempts = open();
  attempts.begin();
  attempts.begin();
  attempts.forgive();
  EXPECT_EQ(open().count(), 1);
  attempts.forgive();
  EXPECT_FALSE(std::filesystem::exists(at("attempts.json")));
  attempts.clear();  // a missing file is no error
}

TEST_F(AttemptsTest, Refuses) {
  const auto message = [&](const std::string& text) {
    write_file(at("attempts.json"), text);
    return error_of([&] { open(); });
  };
  const std::string path = at("./attempts.json"), todo = "; remove this file and run the command again";
  EXPECT_EQ(message("[]"), path + ": expected an object" + todo);
  EXPECT_EQ(message("{}"), path + ": \"step\" is missing" + todo);
  EXPECT_EQ(message(R"({"job":"a","step":-1,"attempts":0,"ended":"","stderr_tail":[]})"),
            path + ": negative count" + todo);
  EXPECT_EQ(message(R"({"job":"a","step":1,"attempts":0,"ended":"","stderr_tail":[1]})"),
            path + ": \"stderr_tail\": expected strings" + todo);
  EXPECT_NE(message("{").find(path + ": line 1 column "), std::string::npos);
  EXPECT_EQ(message(R"({"job":"a","step":1,"attempts":2,"ended":"","said":[]})"), "no error");
  EXPECT_EQ(open().count(), 2);
  std::filesystem::remove(at("attempts.json"));
  std::filesystem::create_directory(at("attempts.json"));
  EXPECT_EQ(error_of([&] { open(); }), path + ": not a regular file");
}

}  // namespace
}  // namespace fp8::launch
