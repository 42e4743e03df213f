// Sweeps whose command is a shell script: order, cores, failures, skipped runs, signals, and the death of the
// scheduler.
#include "fp8/launch/run_sweep.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <thread>

#include "cores.h"
#include "folder.h"
#include "fp8/base/signals.h"
#include "sweep_record.h"
#include "sweep_worker.h"

namespace fp8::launch {
namespace {

using std::chrono::milliseconds;
using Words = std::vector<std::string>;

class RunSweepTest : public FolderTest {
 protected:
  RunSweepTest() {
    job_.folder = at("d");
    job_.attempts = 2;
    job_.patience = milliseconds(1000);
    sweep("i = 1, 2, 3\n");
    checkpoint("store", 2);
  }

  void sweep(const std::string& text) { job_.runs = runs_of(parse_sweep(text, "s")); }
  // Runs `script` with $i the value of setting i, $run the folder of the run and $top that of the test.
  std::vector<RunStatus> run(const std::string& script) {
    job_.command = {"sh", "-c", "top='" + at("") + "' i=$2 run=$4\n" + script, "sh"};
    lines_.clear();
    return run_sweep(job_, {[&](const RunStatus& s, RunEvent event) {
                              if (event == RunEvent::started) lines_.push_back(s.run->name + " started");
                              if (event == RunEvent::ended) lines_.push_back(s.run->name + " " + name_of(s.state));
                              if (event == RunEvent::progress) newest_[s.run->name] = s.step;
                            },
                            [&](int signal, std::size_t running) {
                              stopping_ = {signal, running};
                            }});
  }
  static Words states(const std::vector<RunStatus>& runs) {
    Words states;
    for (const RunStatus& r : runs) states.push_back((r.skipped ? "skipped " : "") + name_of(r.state));
    return states;
  }
  std::string text(const std::string& file) const { return test::read_file(at(file)); }

  SweepJob job_;
  Words lines_;
  std::map<std::string, std::int64_t> newest_;
  std::pair<int, std::size_t> stopping_{0, 0};
};

TEST_F(RunSweepTest, RunsInOrderAndSkipsFinishedRuns) {
  const std::vector<RunStatus> runs = run("echo $i >>$top/log");
  EXPECT_EQ(states(runs), (Words{"finished", "finished", "finished"}));
  EXPECT_EQ(lines_,
            (Words{"i=1 started", "i=1 finished", "i=2 started", "i=2 finished", "i=3 started", "i=3 finished"}));
  EXPECT_EQ(sweep_exit(runs), Exit::done);
  EXPECT_EQ(states(run("echo $i >>$top/log")), (Words{"skipped finished", "skipped finished", "skipped finished"}));
  sweep("i = 1, 4\n");
  EXPECT_EQ(states(run("echo $i >>$top/log")), (Words{"skipped finished", "finished"}));
  EXPECT_EQ(text("log"), "1\n2\n3\n4\n");
}

TEST_F(RunSweepTest, AnotherCommandRunsAgain) {
  run("exit 0");
  EXPECT_EQ(states(earlier_runs(job_)), (Words{"skipped finished", "skipped finished", "skipped finished"}));
  job_.command.emplace_back("more");
  EXPECT_EQ(states(earlier_runs(job_)), (Words{"unfinished", "unfinished", "unfinished"}));
}

TEST_F(RunSweepTest, OtherFlagsOfASideAreRefused) {
  sweep("side a: --x 1\n");
  run("exit 0");
  sweep("side a: --x 2\n");
  EXPECT_EQ(
      error_of([&] { earlier_runs(job_); }),
      at("d/a") + ": was made with other flags: --x 1; now --x 2: give the side another name, or move the folder away");
  EXPECT_NE(error_of([&] { run("exit 0"); }).find("was made with other flags"), std::string::npos);
}

TEST_F(RunSweepTest, FailuresAreReportedAndTheOthersGoOn) {
  const std::vector<RunStatus> runs =
      run("case $i in 1) echo 'fp8-step: --lr: no number' >&2; echo ---- >&2; exit 2;; 2) exit 4;; *) exit 0;; esac");
  EXPECT_EQ(states(runs), (Words{"failed", "diverged", "finished"}));
  EXPECT_EQ(runs[0].status, Exit::bad);
  EXPECT_EQ(runs[0].reason, "status 2");
  EXPECT_EQ(runs[0].tail, "fp8-step: --lr: no number");
  EXPECT_EQ(sweep_exit(runs), Exit::bad);
  EXPECT_EQ(states(run("exit 0")), (Words{"finished", "finished", "finished"}));
}

TEST_F(RunSweepTest, ADivergedRunIsAResult) {
  const std::string script = "echo x >>$top/log; [ $i != 2 ] || exit 4";
  EXPECT_EQ(sweep_exit(run(script)), Exit::diverged);
  const std::vector<RunStatus> again = run(script);
  EXPECT_EQ(states(again), (Words{"skipped finished", "skipped diverged", "skipped finished"}));
  EXPECT_EQ(sweep_exit(again), Exit::diverged);
  EXPECT_EQ(text("log"), "x\nx\nx\n");
}

TEST_F(RunSweepTest, CrashesAreRetriedAndThenReported) {
  const std::vector<RunStatus> runs =
      run("[ $i != 1 ] || { echo cause >&2; exit 9; }\n[ $i != 2 ] || [ -e $run/once ] || { touch $run/once; kill "
          "-KILL $$; }");
  EXPECT_EQ(states(runs), (Words{"failed", "finished", "finished"}));
  EXPECT_NE(runs[0].reason.find("gave up after 2 attempts without a newer checkpoint, the last with status 9"),
            std::string::npos);
  EXPECT_EQ(runs[0].tail, "cause");
  EXPECT_EQ(lines_[3], "i=2 started");
  EXPECT_EQ(lines_[4], "i=2 started");
  EXPECT_NE(text("d/i=1/sweep.log").find("cause\n"), std::string::npos);
}

TEST_F(RunSweepTest, ACommandThatDoesNotExist) {
  job_.command = {"no-such-program-here"};
  const std::vector<RunStatus> runs = run_sweep(job_, {[](const RunStatus&, RunEvent) {}, [](int, std::size_t) {}});
  EXPECT_EQ(runs[2].reason, "no-such-program-here: no such program");
  EXPECT_EQ(sweep_exit(runs), Exit::bad);
}

TEST_F(RunSweepTest, StepsAreRead) {
  run("echo '{\"type\":\"run\",\"steps\":9}'; echo text; echo '{\"type\":\"step\",\"step\":7,\"loss\":1.5}'; "
      "echo '{\"type\":\"eval\",\"loss\":2.5}'");
  EXPECT_EQ(newest_["i=1"], 7);
  const std::vector<RunStatus> runs =
      run("echo '{\"type\":\"step\",\"step\":8,\"loss\":null}'; echo '{\"type\":\"eval\",\"loss\":2.5}'");
  EXPECT_EQ(runs[0].step, 8);
  EXPECT_EQ(runs[0].held_out, 2.5);
  EXPECT_FALSE(runs[0].loss == runs[0].loss);
}

TEST_F(RunSweepTest, JobsRunAtTheSameTimeOnDifferentCores) {
  if (usable_threads().size() < 2) GTEST_SKIP() << "one core";
  job_.jobs = 2;
  sweep("i = 1, 2\n");
  // Each waits for the other.
  const std::vector<RunStatus> runs =
      run("touch $top/up$i; n=0; until [ -e $top/up$((3 - i)) ] || [ $n = 500 ]; do sleep 0.02; n=$((n + 1)); done\n"
          "[ $n != 500 ] && grep Cpus_allowed_list /proc/self/status >$top/cores$i; echo $CUDA_VISIBLE_DEVICES "
          ">>$top/cores$i");
  EXPECT_EQ(states(runs), (Words{"finished", "finished"}));
  EXPECT_NE(runs[0].cores, runs[1].cores);
  for (const std::size_t i : {0U, 1U})
    EXPECT_NE(text("cores" + std::to_string(i + 1)).find("Cpus_allowed_list:\t" + runs[i].cores + "\n"),
              std::string::npos);
  job_.jobs = 100'000;
  EXPECT_NE(error_of([&] { run("exit 0"); }).find("100000 jobs need cores of their own, and there are "),
            std::string::npos);
}

// A command that saves a checkpoint and stops on request.
const std::string kTrap =
    "trap 'cp -r $top/store/step-00000002 $run; echo saved >>$top/log; exit 75' USR1; touch $top/up\n";
const std::string kWait = "while :; do sleep 0.02; done";

TEST_F(RunSweepTest, AStopRequestSavesAndTheSameCommandContinues) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    std::filesystem::remove_all(at("d"));
    std::filesystem::remove(at("log"));
    const std::string ask = "kill -" + signal_name(signal) + " " + std::to_string(::getpid()) + "\n";
    const std::vector<RunStatus> runs = run(kTrap + ask + kWait);
    EXPECT_EQ(states(runs), (Words{"stopped", "fresh", "fresh"}));
    EXPECT_EQ(sweep_exit(runs), Exit::again);
    EXPECT_EQ(stopping_, (std::pair<int, std::size_t>{signal, 1}));
    EXPECT_EQ(text("log"), "saved\n");
  }
  EXPECT_EQ(states(earlier_runs(job_)), (Words{"unfinished", "fresh", "fresh"}));
  EXPECT_EQ(sweep_exit(run("exit 0")), Exit::done);
}

TEST_F(RunSweepTest, JobsOfAKilledSweepSaveAndStop) {
  const pid_t sweep = ::fork();
  if (sweep == 0) {
    run(kTrap + kWait);
    ::_exit(0);
  }
  for (int i = 0; i < 500 && !std::filesystem::exists(at("up")); ++i) std::this_thread::sleep_for(milliseconds(20));
  ::kill(sweep, SIGKILL);
  ASSERT_EQ(::waitpid(sweep, nullptr, 0), sweep);
  for (int i = 0; i < 500 && !std::filesystem::exists(at("log")); ++i) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(text("log"), "saved\n");
  // The lock is held until the last process of the killed sweep has ended.
  std::string message;
  for (int i = 0; i < 500; ++i) {
    message = error_of([&] { run("exit 0"); });
    if (message == "no error") break;
    EXPECT_EQ(message, at("d") + ": in use by another fp8-sweep or by a command that it started");
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(message, "no error");
}

TEST(SweepExit, WorstStatus) {
  const auto of = [](std::vector<std::pair<RunState, Exit>> list) {
    std::vector<RunStatus> runs(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      runs[i].state = list[i].first;
      runs[i].status = list[i].second;
    }
    return sweep_exit(runs);
  };
  const std::pair<RunState, Exit> done{RunState::finished, Exit::done}, diverged{RunState::diverged, Exit::diverged},
      missing{RunState::failed, Exit::fp8_missing}, failed{RunState::failed, Exit::bad},
      stopped{RunState::stopped, Exit::again};
  EXPECT_EQ(of({done}), Exit::done);
  EXPECT_EQ(of({done, diverged}), Exit::diverged);
  EXPECT_EQ(of({diverged, missing}), Exit::fp8_missing);
  EXPECT_EQ(of({missing, failed, diverged}), Exit::bad);
  EXPECT_EQ(of({failed, stopped, done}), Exit::again);
  EXPECT_EQ(of({failed, {RunState::fresh, Exit::done}}), Exit::again);
}

TEST(ErrorLine, IsThatOfATool) {
  EXPECT_EQ(error_line(
                {"note", "fp8-step: --lr: no number", "-----", "Primary job  terminated", "  Exit code:    2", "----"}),
            "fp8-step: --lr: no number");
  EXPECT_EQ(error_line({"out of luck", "----"}), "out of luck");
  EXPECT_EQ(error_line({"----"}), "");
  EXPECT_EQ(error_line({}), "");
}

using SweepRecordTest = FolderTest;

TEST_F(SweepRecordTest, ReadsBackAndRefusesDamage) {
  const auto message = [&](const std::string& text) {
    write_file(at("sweep.json"), text);
    return error_of([&] { read_sweep_record(at(".")); });
  };
  EXPECT_FALSE(read_sweep_record(at(".")));
  write_sweep_record(at("."), {{"--a", "b"}, {"c"}, 4, 7});
  const auto record = read_sweep_record(at("."));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->flags, (Words{"--a", "b"}));
  EXPECT_EQ(record->command, (Words{"c"}));
  EXPECT_EQ(record->status, 4);
  EXPECT_EQ(record->position, 7);
  write_sweep_record(at("."), {{}, {"c"}, std::nullopt});
  EXPECT_EQ(read_sweep_record(at("."))->status, std::nullopt);
  const std::string path = at("./sweep.json"), todo = "; remove this file and run the command again";
  EXPECT_EQ(message("[]"), path + ": expected an object" + todo);
  EXPECT_EQ(message("{}"), path + ": \"flags\" is missing" + todo);
  EXPECT_EQ(message(R"({"flags":[1],"command":[]})"), path + ": \"flags\": expected strings" + todo);
  EXPECT_EQ(message(R"({"flags":[],"command":[],"status":256})"), path + ": \"status\": no exit status" + todo);
  for (const std::string damaged : {"", "{"}) {
    EXPECT_TRUE(message(damaged).starts_with(path + ": line 1 column ")) << message(damaged);
    EXPECT_TRUE(message(damaged).ends_with(todo)) << message(damaged);
  }
}

}  // namespace
}  // namespace fp8::launch
