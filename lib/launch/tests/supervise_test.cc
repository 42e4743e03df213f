// The loop of fp8-resume, with commands that write prepared checkpoints to the run's folder.
#include "fp8/launch/supervise.h"

#include <unistd.h>

#include <csignal>

#include "folder.h"

namespace fp8::launch {
namespace {

using Words = std::vector<std::string>;

class SuperviseTest : public FolderTest {
 protected:
  SuperviseTest() {
    for (const std::int64_t step : {1, 2, 4, 6}) checkpoint("store", step);
    job_.run = at("run");
    job_.patience = std::chrono::milliseconds(1000);
  }

  // Runs `script` with $1 the run's folder, $3 the last step of the phase, and the functions `save N` and `starts`,
  // which prints the number of starts.
  Exit supervise_script(const std::string& script) {
    const std::string functions = "store='" + at("store") +
                                  "' run=$1\n"
                                  "save() { cp -r $store/$(printf step-%08d $1) $run/; }\n"
                                  "starts() { echo x >>$store/starts; wc -l <$store/starts; }\n";
    job_.command = {"sh", "-c", functions + script};
    return again();
  }
  Exit again() {
    actions_.clear();
    records_.clear();
    notes_.clear();
    const Hooks hooks{[&](const json::Value& record) {
                        records_.push_back(record);
                        actions_ += (actions_.empty() ? "" : " ") + record.as_object().get_string("action", "record");
                      },
                      [&](const std::string& note) { notes_.push_back(note); },
                      [&](std::string_view text) { out_ += text; }, [](std::string_view) {}};
    return supervise(job_, hooks);
  }
  std::string failure(const std::string& script) {
    return error_of([&] { supervise_script(script); });
  }
  const json::Object& record(std::size_t i) const { return records_.at(i).as_object(); }
  bool attempts_file() const { return std::filesystem::exists(at("run/attempts.json")); }

  Job job_;
  std::string actions_, out_;
  std::vector<json::Value> records_;
  Words notes_;
};

TEST_F(SuperviseTest, WithoutPhases) {
  EXPECT_EQ(supervise_script("echo \"$*\"; save 4"), Exit::done);
  EXPECT_EQ(actions_, "launch done");
  EXPECT_EQ(out_, at("run\n"));
  EXPECT_EQ(record(1).get_int("step", ""), 4);
  EXPECT_EQ(record(1).get_string("checkpoint", ""), at("run/step-00000004"));
  EXPECT_FALSE(attempts_file());
  EXPECT_EQ(again(), Exit::done);
  EXPECT_EQ(actions_, "resume done");
  EXPECT_EQ(record(0).get_string("checkpoint", ""), at("run/step-00000004"));
  EXPECT_EQ(notes_.back(), "done: " + at("run/step-00000004"));
}

TEST_F(SuperviseTest, DoneWithoutACheckpoint) {
  EXPECT_EQ(supervise_script("exit 0"), Exit::done);
  EXPECT_TRUE(record(1).at("checkpoint").is_null());
  EXPECT_EQ(notes_.back(), "done, without a checkpoint");
}

TEST_F(SuperviseTest, Phases) {
  job_.phases = parse_phases("2 --precision bf16\n4 --precision fp8\n6\n", "p");
  EXPECT_EQ(supervise_script("shift; echo $*; save $2"), Exit::done);
  EXPECT_EQ(actions_, "phase launch phase resume phase resume done");
  EXPECT_EQ(out_,
            "--until-step 2 --steps 6 --precision bf16\n--until-step 4 --steps 6 --precision fp8\n--until-step 6 "
            "--steps 6\n");
  EXPECT_EQ(record(2).get_int("phase", ""), 2);
  EXPECT_EQ(record(2).get_int("phases", ""), 3);
  EXPECT_EQ(record(2).get_int("until", ""), 4);
  EXPECT_EQ(record(2).at("flags"), json::Value(json::Array{"--precision", "fp8"}));
  EXPECT_EQ(again(), Exit::done);
  EXPECT_EQ(actions_, "done");
}

TEST_F(SuperviseTest, PhasesResumeFromTheCheckpoint) {
  job_.phases = parse_phases("2\n4\n6\n", "p");
  checkpoint("run", 2);
  EXPECT_EQ(supervise_script("save $3"), Exit::done);
  EXPECT_EQ(actions_, "phase resume phase resume done");
  EXPECT_EQ(record(0).get_int("phase", ""), 2);
}

TEST_F(SuperviseTest, CrashInAPhase) {
  job_.phases = parse_phases("2\n4\n", "p");
  EXPECT_EQ(supervise_script("case $(starts) in 1) save 1; kill -KILL $$;; 2) exit 9;; *) save $3;; esac"), Exit::done);
  EXPECT_EQ(actions_, "phase launch retry resume retry resume phase resume done");
  EXPECT_EQ(record(2).get_string("ended", ""), "signal KILL");
  EXPECT_TRUE(record(2).get_bool("progress", ""));
  EXPECT_EQ(record(2).get_int("attempt", ""), 1);
  EXPECT_EQ(record(4).get_string("ended", ""), "status 9");
  EXPECT_FALSE(record(4).get_bool("progress", ""));
  EXPECT_EQ(record(4).get_int("attempt", ""), 2);
  EXPECT_FALSE(attempts_file());
}

TEST_F(SuperviseTest, GivesUp) {
  EXPECT_EQ(failure("starts; echo cause >&2; exit 9"),
            at("run") +
                ": gave up after 3 attempts without a newer checkpoint, the "
                "last with status 9; to try again after fixing the cause, remove " +
                at("run/attempts.json"));
  EXPECT_EQ(actions_, "launch retry launch retry launch give-up");
  EXPECT_EQ(out_, "1\n2\n3\n");
  EXPECT_EQ(record(5).at("stderr_tail"), json::Value(json::Array{"cause"}));
  EXPECT_EQ(notes_[notes_.size() - 2], "stderr tail of the last attempt:");
  EXPECT_EQ(notes_.back(), "  cause");
  // The count is kept for the same job, but not for another one.
  EXPECT_NE(error_of([&] { again(); }).find("gave up after 3 attempts"), std::string::npos);
  EXPECT_EQ(actions_, "give-up");
  EXPECT_EQ(record(0).get_string("ended", ""), "status 9");
  job_.attempts = 4;
  EXPECT_NE(error_of([&] { again(); }).find("gave up after 4 attempts"), std::string::npos);
  EXPECT_EQ(actions_, "launch give-up");
  EXPECT_EQ(supervise_script("exit 0"), Exit::done);
}

TEST_F(SuperviseTest, CommandEndsBeforeThePhase) {
  job_.phases = parse_phases("2\n", "p");
  job_.attempts = 2;
  EXPECT_NE(failure("save 1").find(
                "gave up after 2 attempts without a newer checkpoint, the last with status 0 before step 2"),
            std::string::npos);
  EXPECT_EQ(actions_, "phase launch retry resume retry resume give-up");
}

TEST_F(SuperviseTest, RepeatedDamageIsNoProgress) {
  job_.phases = parse_phases("2\n4\n", "p");
  checkpoint("run", 2);
  EXPECT_NE(failure("save 4; echo x >>$run/step-00000004/rank-00000-of-00001.h5").find("gave up after 3 attempts"),
            std::string::npos);
  EXPECT_EQ(actions_, "phase resume damaged retry resume damaged retry resume damaged give-up");
}

TEST_F(SuperviseTest, FinalStatuses) {
  for (const int status : {2, 3, 4}) {
    EXPECT_EQ(supervise_script("exit " + std::to_string(status)), static_cast<Exit>(status));
    EXPECT_EQ(actions_, "launch failed");
    EXPECT_EQ(record(1).get_int("status", ""), status);
    EXPECT_FALSE(attempts_file());
  }
}

TEST_F(SuperviseTest, Status75WithoutRequestIsRetried) {
  EXPECT_EQ(supervise_script("case $(starts) in 1) save 2; exit 75;; *) save 4;; esac"), Exit::done);
  EXPECT_EQ(actions_, "launch retry resume done");
  EXPECT_EQ(record(1).get_string("ended", ""), "status 75");
}

TEST_F(SuperviseTest, StopOnRequest) {
  job_.phases = parse_phases("4\n6\n", "p");
  EXPECT_EQ(supervise_script("trap 'save 2; exit 75' USR1; kill -TERM $PPID; while :; do sleep 0.02; done"),
            Exit::again);
  EXPECT_EQ(actions_, "phase launch stop stopped");
  EXPECT_EQ(record(2).get_string("signal", ""), "TERM");
  EXPECT_EQ(record(3).get_int("step", ""), 2);
  EXPECT_TRUE(record(3).get_bool("saved", ""));
  EXPECT_FALSE(attempts_file());
}

TEST_F(SuperviseTest, StopAtTheEndOfAPhase) {
  job_.phases = parse_phases("4\n6\n", "p");
  EXPECT_EQ(supervise_script("trap 'save $3; exit 0' USR1; kill -TERM $PPID; while :; do sleep 0.02; done"),
            Exit::again);
  EXPECT_EQ(again(), Exit::done);  // the last phase, so the run is complete
  EXPECT_EQ(actions_, "phase resume stop done");
}

TEST_F(SuperviseTest, StopWithoutSave) {
  const std::string script = "kill -TERM $PPID; exec sleep 60";
  EXPECT_EQ(failure(script), at("run") + ": stopped on request, but signal USR1 came before the first checkpoint");
  checkpoint("run", 2);
  EXPECT_EQ(supervise_script(script), Exit::again);
  EXPECT_EQ(actions_, "resume stop stopped");
  EXPECT_FALSE(record(2).get_bool("saved", ""));
  EXPECT_TRUE(attempts_file());
}

TEST_F(SuperviseTest, DamagedCheckpoints) {
  checkpoint("run", 2);
  damage(checkpoint("run", 4));
  EXPECT_EQ(supervise_script("exit 0"), Exit::done);
  EXPECT_EQ(actions_, "damaged resume damaged done");
  EXPECT_EQ(record(0).get_string("path", ""), at("run/step-00000004"));
  EXPECT_EQ(record(1).get_int("step", ""), 2);
  EXPECT_TRUE(notes_[0].starts_with(at("run/step-00000004") + ": damaged, trying an older one: "));
  damage(at("run/step-00000002"));
  EXPECT_TRUE(failure("exit 0").starts_with(
      at("run") +
      ": every checkpoint in it is damaged; move them away to start again; the newest: " + at("run/step-")));
}

TEST_F(SuperviseTest, CheckpointWithoutTrainDocument) {
  checkpoint("run", 2, false);
  EXPECT_TRUE(failure("exit 0").starts_with(
      at("run") +
      ": every checkpoint in it is damaged; move them away to start again; the newest: " + at("run/step-")));
  EXPECT_TRUE(notes_[0].ends_with(at("run/step-00000002") + ": has no /train, so it is not a step of a run"));
}

TEST_F(SuperviseTest, FailedOutput) {
  job_.command = {"sh", "-c", "trap 'exit 75' USR1; while :; do echo line; sleep 0.02; done"};
  const Hooks hooks{[](const json::Value&) {}, [](const std::string&) {}, [](std::string_view) { throw Error("full"); },
                    [](std::string_view) {}};
  EXPECT_EQ(error_of([&] { supervise(job_, hooks); }), "full");
  EXPECT_FALSE(attempts_file());
}

TEST_F(SuperviseTest, NoSuchCommand) {
  job_.command = {"no-such-program-here"};
  EXPECT_EQ(error_of([&] { again(); }), "no-such-program-here: no such program");
  EXPECT_FALSE(attempts_file());
  job_.command = {};
  EXPECT_EQ(error_of([&] { again(); }), "command: needed after --");
}

TEST_F(SuperviseTest, PhasesAfterTheEndOfTheRun) {
  job_.phases = parse_phases("9\n", "p");
  job_.command = {"fp8-step", "--steps", "4"};
  EXPECT_EQ(error_of([&] { again(); }), "p:1: step 9 is after the end of the run, --steps 4");
}

TEST_F(SuperviseTest, DryRun) {
  job_.phases = parse_phases("2 --precision bf16\n", "p");
  job_.dry_run = true;
  EXPECT_EQ(supervise_script("save 2"), Exit::done);
  EXPECT_EQ(actions_, "phase launch");
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

TEST_F(SuperviseTest, FolderIsLocked) {
  EXPECT_EQ(supervise_script("exit 0"), Exit::done);
  std::string message;
  const Hooks hooks{
      [](const json::Value&) {}, [](const std::string&) {},
      [&](std::string_view) {
        message = error_of([&] { supervise(job_, {[](const json::Value&) {}, [](const std::string&) {}, {}, {}}); });
      },
      [](std::string_view) {}};
  job_.command = {"echo"};
  EXPECT_EQ(supervise(job_, hooks), Exit::done);
  EXPECT_EQ(message, at("run") + ": in use by another fp8-resume or by a command that it started");
  write_file(at("file"), "");
  job_.run = at("file");
  EXPECT_EQ(error_of([&] { again(); }), at("file") + ": exists and is not a folder");
}

}  // namespace
}  // namespace fp8::launch
