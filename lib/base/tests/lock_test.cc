// A lock file has one holder until that holder releases it or ends; the holder of a folder notices when it is replaced.
#include "fp8/base/lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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

// A folder `run` in a temporary one, locked.
class Locked : public ::testing::Test {
 protected:
  Locked() {
    std::filesystem::create_directory(path_);
    EXPECT_EQ(held_.take(path_), std::nullopt);
    EXPECT_TRUE(held_.in_place());
  }
  // The message of check(); in_place() must agree.
  std::string problem() const {
    std::string text;
    try {
      held_.check();
    } catch (const Error& e) {
      text = std::string(e.what()).substr(path_.size());
    }
    EXPECT_EQ(held_.in_place(), text.empty());
    return text;
  }
  void rename(const std::string& from, const std::string& to) const {
    std::filesystem::rename(folder_.at(from), folder_.at(to));
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.at("run");
  LockedFolder held_;
};

TEST_F(Locked, NoticesThatTheFolderIsGone) {
  rename("run", "moved");
  EXPECT_EQ(problem(), ": the folder of this run has been removed or renamed; the run ends and writes nothing more");
  rename("moved", "run");
  EXPECT_EQ(problem(), "");
  std::filesystem::remove_all(path_);
  EXPECT_NE(problem(), "");
  std::ofstream(path_) << "a file";
  EXPECT_NE(problem(), "");
}

TEST_F(Locked, NoticesAnotherFolderThatIsLockedToo) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directory(path_);
  LockedFolder other;
  EXPECT_EQ(other.take(path_), std::nullopt);
  EXPECT_EQ(problem(),
            ": another folder has taken the place of the folder of this run; the run ends and writes nothing more");
  EXPECT_TRUE(other.in_place());
}

TEST_F(Locked, NoticesThatTheLockFileIsGoneOrAnother) {
  const std::string lost =
      "/.lock: has been removed or replaced while this run held the lock, so another job may "
      "write to the folder; the run ends and writes nothing more";
  std::filesystem::remove(path_ + "/.lock");
  EXPECT_EQ(problem(), lost);
  LockedFolder other;
  EXPECT_EQ(other.take(path_), std::nullopt);
  EXPECT_EQ(problem(), lost);
  EXPECT_TRUE(other.in_place());
}

TEST_F(Locked, IsInPlaceThroughALink) {
  const std::string link = folder_.at("link");
  std::filesystem::create_directory(folder_.at("other"));
  std::filesystem::create_directory_symlink("other", link);
  LockedFolder held;
  EXPECT_EQ(held.take(link), std::nullopt);
  EXPECT_TRUE(held.in_place());
  rename("other", "renamed");
  EXPECT_FALSE(held.in_place());
  std::filesystem::remove(link);
  std::filesystem::create_directory_symlink("renamed", link);
  EXPECT_TRUE(held.in_place());
}

TEST(LockedFolder, IsInPlaceUntilItIsTaken) {
  const LockedFolder none;
  EXPECT_FALSE(none.taken());
  EXPECT_TRUE(none.in_place());
  EXPECT_NO_THROW(none.check());
}

}  // namespace
}  // namespace fp8
