// Every row of the table of settings is walked: it parses, reaches its member, prints, reads back, is in the records
// that it names, is refused out of its range, and decides what may change when a run is resumed.
#include "fp8/settings/setting.h"

#include <map>
#include <memory>
#include <set>

#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/settings/flags.h"
#include "fp8_test.h"

namespace fp8::settings {
namespace {

using namespace test;
using cli::FlagKind;
using Words = std::vector<std::string>;

const std::vector<Tool> kTools = {kStep, kEval, kInspect, kSide};

// It is shared since Config has no virtual destructor.
std::shared_ptr<Config> new_config(Tool tool) {
  if (tool == kStep) return std::make_shared<RunConfig>();
  if (tool == kEval) return std::make_shared<EvalConfig>();
  if (tool == kInspect) return std::make_shared<InspectConfig>();
  return std::make_shared<Config>();
}

cli::Command command_of(Tool tool) {
  cli::Command command;
  command.flags = flags_of(tool);
  return command;
}

// The configuration of a tool from flags; needed ones are added.
std::shared_ptr<Config> config_of(Tool tool, cli::Arguments arguments) {
  json::Value needed = json::object({});
  for (const Setting& s : all_settings())
    if ((s.tools & tool) != 0 && s.needed && !arguments.has_value(s.flag.name))
      needed.as_object().set(s.flag.name, "some.h5");
  cli::parse_config(command_of(tool), needed, arguments);
  std::shared_ptr<Config> config = new_config(tool);
  read_settings(arguments, tool, *config);
  return config;
}

// A value in the range of a flag, but not its default. A flag whose text has a form gets a text in that form.
std::string sample(const cli::Flag& flag) {
  const std::map<std::string, std::string> texts = {
      {"betas", "0.8,0.9"},  {"precision", "fp32"}, {"profile", "2-3"}, {"fp8-gemms", "*up_proj=dgrad"},
      {"recipe", "rowwise"}, {"change", "lr"},      {"stages", "2,3"}};
  if (texts.contains(flag.name)) return texts.at(flag.name);
  if (flag.kind == FlagKind::choice)
    return flag.choices.back() == flag.default_text ? flag.choices.front() : flag.choices.back();
  if (flag.kind == FlagKind::real) return flag.min.value_or(0) < 0.5 ? "0.5" : "2.5";
  if (flag.kind == FlagKind::interval) return "7";
  if (flag.kind == FlagKind::integer)
    return std::to_string(flag.default_text.empty() ? static_cast<std::int64_t>(*flag.min) + 3
                                                    : *parse_int64(flag.default_text) + (flag.max == 1024 ? -1 : 1));
  return "text";
}

// The words that give a flag its sample.
Words words_of(const cli::Flag& flag) {
  if (flag.kind == FlagKind::toggle) return {(flag.default_text == "on" ? "--no-" : "--") + flag.name};
  return {"--" + flag.name + "=" + sample(flag)};
}

// Calls `check` for each row of each tool that has it.
template <class Check>
void walk(const Check& check) {
  int rows = 0;
  for (const Tool tool : kTools) {
    for (const Setting& s : all_settings()) {
      if ((s.tools & tool) == 0) continue;
      SCOPED_TRACE("--" + s.flag.name + " of tool " + std::to_string(tool));
      check(tool, s);
      ++rows;
    }
  }
  EXPECT_GT(rows, 120);
}

TEST(Setting, HasOneRowInEachTool) {
  for (const Tool tool : kTools) {
    std::set<std::string> names;
    for (const cli::Flag& flag : flags_of(tool)) EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
  }
  const auto in = [](const cli::Command& command) { return command.flags.size(); };
  EXPECT_EQ(in(step_command()), flags_of(kStep).size());
  EXPECT_EQ(in(eval_command()), flags_of(kEval).size());
  EXPECT_EQ(in(inspect_command()), flags_of(kInspect).size());
}

TEST(Setting, DefaultIsTheInitializerOfTheMember) {
  walk([](Tool tool, const Setting& s) {
    if (!s.value || s.needed) return;
    EXPECT_EQ(json::dump(s.value(*config_of(tool, cli::Arguments(command_of(tool))))),
              json::dump(s.value(*new_config(tool))));
  });
}

TEST(Setting, ReachesItsMemberAndReadsBackFromAConfiguration) {
  walk([](Tool tool, const Setting& s) {
    const cli::Command command = command_of(tool);
    const cli::Arguments given = cli::parse(command, words_of(s.flag));
    EXPECT_TRUE(given.has(s.flag.name));
    const json::Value printed = cli::resolved(command, given);
    EXPECT_EQ(printed.as_object().contains(s.flag.name), s.flag.in_config);
    cli::Arguments again(command);
    cli::parse_config(command, printed, again);
    EXPECT_EQ(json::dump(cli::resolved(command, again)), json::dump(printed));
    if (!s.value) return;
    const json::Value value = s.value(*config_of(tool, given));
    EXPECT_NE(json::dump(value), json::dump(s.value(*new_config(tool))));
    if (s.flag.in_config) {
      EXPECT_EQ(json::dump(s.value(*config_of(tool, again))), json::dump(value));
    }
  });
}

TEST(Setting, IsRefusedOutOfItsRange) {
  walk([](Tool tool, const Setting& s) {
    const cli::Flag& f = s.flag;
    Words wrong;
    if (f.kind == FlagKind::toggle) wrong = {"1"};
    if (f.kind == FlagKind::choice) wrong = {"", "no-such-name"};
    if (f.kind == FlagKind::path) wrong = {""};
    if (f.kind == FlagKind::interval) wrong = {"", "-1", "30x"};
    if (f.kind == FlagKind::integer || f.kind == FlagKind::real) {
      ASSERT_TRUE(f.min && f.max);
      wrong = {"", "x", "nan", format_double(*f.min - 1), format_double(*f.max * 2)};
    }
    for (const std::string& value : wrong)
      EXPECT_NE(error_of([&] {
                  (void)cli::parse(command_of(tool), Words{"--" + f.name + "=" + value});
                }).find("--" + f.name + ": "),
                std::string::npos)
          << value;
    if (f.in_config) {
      EXPECT_NE(error_of([&] {
                  cli::Arguments arguments(command_of(tool));
                  cli::parse_config(command_of(tool), json::object({{f.name, json::object({})}}), arguments);
                }).find("\"" + f.name + "\": expected"),
                std::string::npos);
    }
  });
}

// A run with `words`, under the recipe that records most phases, or one that a flag needs.
RunConfig run_with(Words words, const std::string& flag = "") {
  const std::string recipe = flag == "rowwise-single-copy"                          ? "rowwise"
                             : flag == "fp8-all-gather"                             ? "tensorwise"
                             : flag == "hadamard" || flag == "stochastic-gradients" ? "nvfp4"
                                                                                    : "delayed";
  words.insert(words.begin(), {"--precision=fp8", "--recipe=" + recipe});
  return static_cast<const RunConfig&>(*config_of(kStep, cli::parse(command_of(kStep), words)));
}

json::Value settings_of(const RunConfig& config) {
  return fixed_settings(config, {8, "model", "data", hf::LoraConfig{}, "adapter"});
}

TEST(Setting, IsInTheRecordsThatItsRowNames) {
  for (const Setting& s : all_settings()) {
    if ((s.tools & kStep) == 0) continue;
    SCOPED_TRACE(s.flag.name);
    const RunConfig usual = run_with({}, s.flag.name), changed = run_with(words_of(s.flag), s.flag.name);
    const json::Value phase = phase_of(usual.precision), settings = settings_of(usual);
    const json::Value now_phase = phase_of(changed.precision), now_settings = settings_of(changed);
    const bool of_phase = s.resume == Resume::phase;
    EXPECT_EQ(phase.as_object().contains(s.flag.name), of_phase);
    EXPECT_EQ(settings.as_object().contains(s.record_key()), s.fixed());
    EXPECT_EQ(json::dump(now_phase) != json::dump(phase), of_phase);
    if (!s.record) {
      EXPECT_EQ(json::dump(now_settings) != json::dump(settings), s.fixed());
    }
  }
}

TEST(Setting, ChangesOnResumingAsItsRowSays) {
  const json::Value before = settings_of(run_with({}));
  const std::vector<std::string> names = changeable_settings();
  for (const Setting& s : all_settings()) {
    if (!s.fixed()) continue;
    SCOPED_TRACE(s.flag.name);
    json::Value now = before;
    now.as_object().set(s.record_key(), "another");
    const auto refusal = [&](const Words& change) {
      return error_of([&] { EXPECT_EQ(changed_settings(before, now, change, "run").size(), 1U); });
    };
    const std::string named = s.key.empty() ? "--" + s.flag.name : s.key;
    const std::string remedy = ", or --change " + s.change + " to go on with the new ones";
    EXPECT_EQ(refusal({}).rfind("run: this run was started with another " + named, 0), 0U) << refusal({});
    EXPECT_EQ(refusal({}).find("--change") != std::string::npos, s.resume == Resume::named);
    EXPECT_EQ(s.change.empty(), s.resume == Resume::fixed);
    if (s.resume != Resume::named) continue;
    EXPECT_TRUE(refusal({}).ends_with(remedy)) << refusal({});
    EXPECT_EQ(refusal({s.change}), "no error");
    EXPECT_EQ(setting_name(s.flag.name), s.change);
    EXPECT_EQ(std::ranges::count(names, s.change), 1);
  }
}

}  // namespace
}  // namespace fp8::settings
