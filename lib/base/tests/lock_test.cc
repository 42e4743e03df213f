// A lock file has one holder until that holder releases it or ends.
#include "fp8/base/lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "fp8_test.h"

namespace fp8 {
namespace {

using test::read_file;
using test::TemporaryFolder;

TEST(LockFile, NamesItsHolderUntilReleased) {
  const TemporaryFolder folder;
  const std::string path = folder.at(".lock");
  {
    LockFile first, second;
    EXPECT_EQ(first.take(path), std::nullopt);
    EXPECT_EQ(first.unlockable(), "");
    { const File other = File::open_update(path); }  // closing it would release a POSIX lock
    const std::string line = second.take(path).value_or("taken");
    EXPECT_NE(line.find(", process " + std::to_string(::getpid()) + ", since 20"), std::string::npos) << line;
    EXPECT_EQ(line.rfind("host ", 0), 0U) << line;
    EXPECT_EQ(read_file(path), line + "\n");
  }
  EXPECT_EQ(read_file(path), "");
  EXPECT_EQ(LockFile().take(path), std::nullopt);
}

TEST(LockFile, OfAKilledProcessIsReleased) {
  const TemporaryFolder folder;
  const std::string path = folder.at(".lock");
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    LockFile held;
    const char taken = held.take(path) ? 'n' : 'y';
    (void)!::write(ready[1], &taken, 1);
    ::pause();
  }
  char taken = 0;
  ASSERT_EQ(::read(ready[0], &taken, 1), 1);
  EXPECT_EQ(taken, 'y');
  LockFile mine;
  EXPECT_NE(mine.take(path).value_or("").find("process " + std::to_string(child) + ","), std::string::npos);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_NE(read_file(path), "");
  EXPECT_EQ(mine.take(path), std::nullopt);
  EXPECT_NE(read_file(path).find("process " + std::to_string(::getpid()) + ","), std::string::npos);
}

}  // namespace
}  // namespace fp8
