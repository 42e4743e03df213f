// Outputs appear complete or not at all, and existing files are replaced only with --force.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8_test.h"

namespace fp8 {
namespace {

using test::error_of;
using test::TemporaryFolder;
using test::write_file;

TEST(CheckOutput, RefusesToReplaceOtherThanRegularFiles) {
  const TemporaryFolder folder;
  const std::string file = folder.at("file");
  check_output(file, false, {});
  write_file(file, "x");
  EXPECT_EQ(error_of([&] { check_output(file, false, {}); }), file + ": exists");
  check_output(file, true, {});
  EXPECT_EQ(error_of([&] { check_output("-", true, {}); }),
            "-: the output cannot be standard output, since it is read back and renamed; give a file name");
  EXPECT_EQ(error_of([&] { check_output(folder.path(), true, {}); }),
            folder.path() + ": exists and is not a regular file");
  EXPECT_EQ(error_of([&] { check_output("/dev/null", true, {}); }), "/dev/null: exists and is not a regular file");
  const std::string link = folder.at("link");
  std::filesystem::create_symlink("nowhere", link);
  EXPECT_EQ(error_of([&] { check_output(link, true, {}); }), link + ": exists and is not a regular file");
  EXPECT_EQ(error_of([&] { check_output(folder.at("a/b"), false, {}); }),
            folder.at("a/b: cannot write in ") + folder.at("a: No such file or directory"));
  EXPECT_EQ(error_of([&] { check_output(file + "/b", false, {}); }),
            file + "/b: cannot write in " + file + ": Not a directory");
  EXPECT_EQ(error_of([&] { check_output("", false, {}); }), "output: empty path");
  EXPECT_EQ(error_of([&] { check_output(file + "/", true, {}); }), file + "/: names a folder");
}

TEST(CheckNotOfRun, RefusesWhatARunWrites) {
  const TemporaryFolder folder;
  const std::string run = folder.at("run");
  const auto refused = [](const std::string& output, const std::string& own = "") {
    return error_of([&] { check_not_of_run(output, own); }) != "no error";
  };
  std::filesystem::create_directories(run);
  EXPECT_FALSE(refused(run + "/log.jsonl"));
  EXPECT_TRUE(refused(run + "/log.jsonl", run));
  EXPECT_TRUE(refused(folder.at("none/log.jsonl"), folder.at("none")));
  for (const char* mark : {"log.jsonl", ".lock", "sweep.json", "step-00000001"}) {
    write_file(run + "/" + mark, "");
    for (const char* name : {"log.jsonl", "tensors.jsonl", ".lock", "attempts.json", "sweep.json", "sweep.log",
                             "profile-3-5.json", "step-00000002", "step-00000002/", "step-00000002.tmp",
                             "step-00000002.old.tmp", "step-123456789/a/b", "a/../log.jsonl", "../run/./.lock"})
      EXPECT_TRUE(refused(run + "/" + name)) << mark << " " << name;
    for (const char* name : {"", "/", "/..", "/.", "/other.jsonl", "/step-", "/step-x", "/step-1.h5", "/step-1x.tmp",
                             "/profile.json", "/profile-1.svg", "/a/log.jsonl"})
      EXPECT_FALSE(refused(run + name)) << mark << " " << name;
    std::filesystem::remove(run + "/" + mark);
  }
  const std::string folders = folder.at("folders");
  std::filesystem::create_directories(folders + "/step-1");
  EXPECT_FALSE(refused(folders + "/step-1")) << "a name that no run gives";
  EXPECT_FALSE(refused(folders + "/step-2"));
  write_file(run + "/log.jsonl", "");
  std::filesystem::create_symlink("run", folder.at("link"));
  std::filesystem::create_symlink("run/log.jsonl", folder.at("file"));
  EXPECT_TRUE(refused(folder.at("link/log.jsonl")));
  EXPECT_TRUE(refused(folder.at("file")));
  AtomicFile log(run + "/log.jsonl", true);  // as a run writes its files
  log.commit();
}

TEST(CheckNotInput, RefusesEveryNameOfTheInput) {
  const TemporaryFolder folder;
  const std::string file = folder.at("file"), link = folder.at("link"), name = folder.at("name");
  write_file(file, "x");
  write_file(folder.at("other"), "x");
  std::filesystem::create_symlink(file, link);
  std::filesystem::create_hard_link(file, name);
  for (const std::string& output : {file, folder.at("./file"), link, name}) {
    EXPECT_EQ(error_of([&] { check_not_input(output, {folder.at("other"), file}); }), output + ": is also an input");
    for (const bool force : {false, true})
      EXPECT_EQ(error_of([&] { check_output(output, force, {file}); }), output + ": is also an input");
  }
  EXPECT_EQ(error_of([&] { check_not_input(file, {link}); }), file + ": is also an input");
  for (const std::string& output : {folder.at("other"), folder.at("none"), std::string("-")})
    check_not_input(output, {file});
  check_not_input(file, {"-", folder.at("none")});
  check_not_input(file, {});
}

TEST(CheckNotInput, RefusesEveryFileOfAFolderThatIsAnInput) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.at("in/deep"));
  write_file(folder.at("blob"), "x");
  write_file(folder.at("in/deep/file"), "x");
  std::filesystem::create_symlink(folder.at("blob"), folder.at("in/weights"));
  std::filesystem::create_symlink(folder.at("in"), folder.at("link"));
  std::filesystem::create_hard_link(folder.at("in/deep/file"), folder.at("name"));
  const std::string in = folder.at("in");
  for (const std::string& output :
       {folder.at("in/deep/file"), folder.at("blob"), folder.at("link/weights"), folder.at("name")})
    EXPECT_EQ(error_of([&] { check_not_input(output, {in}); }), output + ": is also an input, in " + in);
  check_not_input(folder.at("in/new"), {in});
}

TEST(CheckNotInput, RefusesAFolderThatHoldsAnInput) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.at("out/in"));
  std::filesystem::create_directory(folder.at("empty"));
  write_file(folder.at("out/in/file"), "x");
  for (const std::string& input : {folder.at("out/in/file"), folder.at("out/in")})
    EXPECT_EQ(error_of([&] { check_not_input(folder.at("out"), {input}); }),
              folder.at("out") + ": shares files with the input " + input);
  EXPECT_EQ(error_of([&] { check_not_input(folder.at("out/in"), {folder.at("out")}); }),
            folder.at("out/in") + ": shares files with the input " + folder.at("out"));
  EXPECT_EQ(error_of([&] { check_not_input(folder.at("out/"), {folder.at("out")}); }),
            folder.at("out/") + ": is also an input, in " + folder.at("out"));
  check_not_input(folder.at("empty"), {folder.at("out")});
}

TEST(CheckNotInput, RefusesEveryFileOfACommittedCheckpoint) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.at("step"));
  write_file(folder.at("step/manifest.json"), "{}");
  check_output(folder.at("step/manifest.json"), true, {});  // a folder of something else
  write_file(folder.at("step/rank-00000-of-00001.h5"), "x");
  for (const char* name : {"step/manifest.json", "step/rank-00000-of-00001.h5"})
    EXPECT_EQ(error_of([&] { const AtomicFile file(folder.at(name), true); }),
              folder.at(name) + ": is part of a committed checkpoint, of which no file is replaced");
  check_output(folder.at("step/new"), true, {});
}

TEST(AtomicFile, LeftoversOfTheTargetAreRemoved) {
  const TemporaryFolder folder;
  for (const char* name :
       {".out.0123abcd.tmp", ".other.0123abcd.tmp", "out.0123abcd.tmp", ".out.x.tmp", ".out.0123abcd"})
    write_file(folder.at(name), "x");
  EXPECT_EQ(remove_leftovers(folder.at("out")), std::vector<std::string>{folder.at(".out.0123abcd.tmp")});
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{".other.0123abcd.tmp", ".out.0123abcd", ".out.x.tmp", "out.0123abcd.tmp"}));
  EXPECT_TRUE(remove_leftovers(folder.at("gone/out")).empty());
}

TEST(AtomicFile, AFileBeingWrittenIsNoLeftover) {
  const TemporaryFolder folder;
  const std::string left = folder.write(".out.0123abcd.tmp", "x");
  std::filesystem::create_symlink(left, folder.at(".out.0123abce.tmp"));
  {
    AtomicFile out(folder.at("out"), false);
    File::open_update(out.path()).close();
    EXPECT_EQ(remove_leftovers(folder.at("out")), std::vector<std::string>{left});
    out.commit();
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{".out.0123abce.tmp", "out"}));
}

TEST(MakeFolders, CreatesMissingFolders) {
  const TemporaryFolder folder;
  make_folders(folder.at("a/b/c/"));
  make_folders(folder.at("a/b"));
  EXPECT_TRUE(std::filesystem::is_directory(folder.at("a/b/c")));
  const std::string file = folder.at("file");
  write_file(file, "x");
  EXPECT_EQ(error_of([&] { make_folders(file); }), file + ": exists and is not a folder");
  EXPECT_EQ(error_of([&] { make_folders(file + "/a"); }), file + ": exists and is not a folder");
  EXPECT_EQ(error_of([] { make_folders("/proc/none"); }),
            "/proc/none: cannot make the folder: No such file or directory");
}

TEST(AtomicFile, AppearsOnCommit) {
  const TemporaryFolder folder;
  const std::string target = folder.at("out");
  AtomicFile out(target, false);
  EXPECT_EQ(parent_directory(out.path()), folder.path());
  {
    File f = File::open_update(out.path());
    f.write_all("data");
    f.close();
  }
  EXPECT_FALSE(std::filesystem::exists(target));
  out.commit();
  EXPECT_EQ(read_text_file(target, 10), "data");
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(RemoveUnfinished, RemovesWhatThisProcessWritesAndNothingElse) {
  const TemporaryFolder folder;
  folder.write(".other.0123abcd.tmp", "of another process");
  folder.write(".read.0123abcd.tmp", "an input");
  const File input = File::open_read(folder.at(".read.0123abcd.tmp"));
  const File update = File::open_update(folder.write("mine.tmp", "not temporary"));
  {
    AtomicFile done(folder.at("done"), false);
    done.commit();
    const AtomicFile out(folder.at("out"), false);
    const AtomicFolder folder_out(folder.at("folder"), false);
    write_file(folder_out.path() + "/a", "1");
    EXPECT_EQ(folder.names().size(), 6U);
    remove_unfinished();
    EXPECT_EQ(folder.names(),
              (std::vector<std::string>{".other.0123abcd.tmp", ".read.0123abcd.tmp", "done", "mine.tmp"}));
  }
}

TEST(AtomicFolder, AppearsOnCommitAndLeavesNothingWithout) {
  const TemporaryFolder folder;
  {
    AtomicFolder out(folder.at("out/"), false);
    write_file(out.path() + "/a", "1");
    EXPECT_FALSE(std::filesystem::exists(folder.at("out")));
    out.commit();
  }
  EXPECT_EQ(read_text_file(folder.at("out/a"), 10), "1");
  { write_file(AtomicFolder(folder.at("other"), false).path() + "/a", "1"); }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"out"});
}

TEST(AtomicFolder, TheFolderOfAKilledWriterIsALeftover) {
  const TemporaryFolder folder;
  const std::string left = folder.at(".out.0123abcd.tmp");
  folder.write(".out.0123abcd.tmp/.lock", "");
  folder.write(".out.0123abcd.tmp/model.safetensors", "x");
  folder.write(".out.0123abce.tmp/mine", "x");  // no lock: the folder of another program
  {
    AtomicFolder out(folder.at("out"), false);
    EXPECT_EQ(remove_leftovers(folder.at("out/")), std::vector<std::string>{left});
    write_file(out.path() + "/a", "1");
    out.commit();
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{".out.0123abce.tmp", "out"}));
  EXPECT_FALSE(std::filesystem::exists(folder.at("out/.lock")));
}

TEST(AtomicFolder, ReplacesOnlyFoldersAndOnlyWhenAllowed) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.at("out"));
  write_file(folder.at("out/old"), "old");
  EXPECT_EQ(error_of([&] { AtomicFolder(folder.at("out"), false); }), folder.at("out") + ": exists");
  write_file(folder.at("file"), "x");
  EXPECT_EQ(error_of([&] { AtomicFolder(folder.at("file"), true); }),
            folder.at("file") + ": exists and is not a folder");
  EXPECT_EQ(error_of([&] { AtomicFolder(folder.at("none/out"), true); }),
            folder.at("none/out") + ": cannot write in " + folder.at("none") + ": No such file or directory");
  AtomicFolder out(folder.at("out"), true);
  write_file(out.path() + "/new", "new");
  out.commit();
  EXPECT_FALSE(std::filesystem::exists(folder.at("out/old")));
  EXPECT_EQ(read_text_file(folder.at("out/new"), 10), "new");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"file", "out"}));
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  write_file(folder.at("out"), "old");
  { const AtomicFile out(folder.at("out"), true); }
  EXPECT_EQ(folder.names().size(), 1U);
  EXPECT_EQ(read_text_file(folder.at("out"), 10), "old");
}

TEST(AtomicFile, ForceReplaces) {
  const TemporaryFolder folder;
  write_file(folder.at("out"), "old");
  EXPECT_EQ(error_of([&] { const AtomicFile out(folder.at("out"), false); }), folder.at("out: exists"));
  AtomicFile out(folder.at("out"), true);
  File::open_update(out.path()).write_all("new");
  out.commit();
  EXPECT_EQ(read_text_file(folder.at("out"), 10), "new");
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(AtomicFile, KeepsATargetCreatedInTheMeantime) {
  const TemporaryFolder folder;
  {
    AtomicFile out(folder.at("out"), false);
    write_file(folder.at("out"), "theirs");
    EXPECT_EQ(error_of([&] { out.commit(); }), folder.at("out: exists"));
  }
  EXPECT_EQ(read_text_file(folder.at("out"), 10), "theirs");
  EXPECT_EQ(folder.names().size(), 1U);
}

TEST(AtomicFile, HasTheModeOfAnyNewFile) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(027);
  AtomicFile out(folder.at("out"), false);
  ::umask(before);
  out.commit();
  struct stat s {};
  ASSERT_EQ(::stat((folder.at("out")).c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777U, 0640U);
}

TEST(AtomicFile, NamesTheTargetWhenCreationFails) {
  const TemporaryFolder folder;
  const std::string target = folder.at(std::string(250, 'x'));  // legal, but not with the temporary's suffix
  EXPECT_EQ(error_of([&] { const AtomicFile out(target, false); }), target + ": File name too long");
}

TEST(CommitDirectory, RenamesOnceOnly) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.at("step.tmp"));
  write_file(folder.at("step.tmp/f"), "x");
  commit_directory(folder.at("step.tmp"), folder.at("step"));
  EXPECT_EQ(read_text_file(folder.at("step/f"), 10), "x");
  std::filesystem::create_directory(folder.at("step.tmp"));
  EXPECT_EQ(error_of([&] { commit_directory(folder.at("step.tmp"), folder.at("step")); }), folder.at("step: exists"));
  EXPECT_EQ(read_text_file(folder.at("step/f"), 10), "x");
}

TEST(Directory, SyncSpaceRemove) {
  const TemporaryFolder folder;
  fsync_directory(folder.path());
  EXPECT_EQ(error_of([&] { fsync_directory(folder.at("none")); }), folder.at("none: No such file or directory"));
  EXPECT_GT(free_space(folder.path()), 0U);
  EXPECT_EQ(error_of([&] { free_space(folder.at("none")); }),
            folder.at("none: cannot determine its free space: No such file or directory"));
  write_file(folder.at("kept"), "x");
  std::filesystem::create_directories(folder.at("a/b"));
  std::filesystem::create_symlink(folder.at("kept"), folder.at("a/b/link"));
  remove_tree(folder.at("a"));
  EXPECT_EQ(folder.names().size(), 1U);
  EXPECT_EQ(read_text_file(folder.at("kept"), 10), "x");
  remove_tree(folder.at("a"));
  int pieces = 0;
  const PieceRunner count = [&](const auto& piece) { ++pieces, piece(); };
  std::filesystem::create_directories(folder.at("a/b"));
  write_file(folder.at("a/c"), "x");
  std::filesystem::create_directory_symlink(folder.at("a"), folder.at("link"));
  remove_tree(folder.at("link"), count);
  EXPECT_EQ(pieces, 0);
  EXPECT_EQ(folder.names().size(), 2U) << "not what a link names";
  remove_tree(folder.at("a"), count);
  remove_tree(folder.at("a"), count);
  EXPECT_EQ(pieces, 2);
  EXPECT_EQ(folder.names().size(), 1U);
  File f = File::open_read(folder.at("kept"));
  drop_page_cache(f.fd());
  drop_page_cache(-1);  // best effort
}

TEST(ScratchFolder, IsRemovedByTheDestructor) {
  const TemporaryFolder place;
  ASSERT_EQ(::setenv("TMPDIR", place.path().c_str(), 1), 0);
  EXPECT_EQ(temporary_place(), place.path());
  {
    const ScratchFolder first, second;
    EXPECT_EQ(place.names().size(), 2U);
    EXPECT_EQ(first.path().rfind(place.at("fp8-")), 0U);
    EXPECT_EQ(first.at("a"), first.path() + "/a");
    make_folders(first.at("a/b"));
    test::write_file(first.at("a/b/c"), "text");
    remove_tree(second.path());  // already removed: no error
  }
  EXPECT_TRUE(place.names().empty());
  ASSERT_EQ(::setenv("TMPDIR", place.at("gone").c_str(), 1), 0);
  EXPECT_EQ(error_of([] { const ScratchFolder none; }),
            place.at("gone") + ": cannot make a temporary folder: No such file or directory");
  ASSERT_EQ(::setenv("TMPDIR", "", 1), 0);
  EXPECT_EQ(temporary_place(), "/tmp");
  ASSERT_EQ(::unsetenv("TMPDIR"), 0);
}

TEST(ParentDirectory, OfPaths) {
  EXPECT_EQ(parent_directory("a"), ".");
  EXPECT_EQ(parent_directory("a/b"), "a");
  EXPECT_EQ(parent_directory("/a"), "/");
  EXPECT_EQ(parent_directory("/a/b/c"), "/a/b");
}

}  // namespace
}  // namespace fp8
