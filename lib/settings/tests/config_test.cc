// Configurations from flags, contradictory flags, and settings that may not change when a run is resumed.
#include "fp8/settings/config.h"

#include <filesystem>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "fp8/cli/command.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/flags.h"
#include "fp8/settings/resume.h"
#include "small_model.h"

namespace fp8::settings {
namespace {

using namespace test;

RunConfig read(std::vector<std::string> words) {
  words.insert(words.begin(), {"m.h5", "--data", "d.h5", "--out", "run"});
  return step_config(cli::parse(cli::with_common(step_command()), words));
}

std::string refusal(const std::vector<std::string>& words) {
  return error_of([&] { (void)read(words); });
}

TEST(Flags, DefaultsAreThoseOfTheManual) {
  const RunConfig c = read({});
  EXPECT_EQ(c.batch_size, 8);
  EXPECT_EQ(c.grad_accumulation, 1);
  EXPECT_EQ(c.seq_length, 0);
  EXPECT_EQ(c.steps, 0);
  EXPECT_EQ(c.seed, 0u);
  EXPECT_EQ(c.sampler, data::SamplerKind::shuffle);
  EXPECT_EQ(c.precision.precision, Precision::bf16);
  EXPECT_EQ(c.precision.execution.activation, DType::bf16);
  EXPECT_EQ(c.precision.recipe, "tensorwise");
  EXPECT_FALSE(c.precision.power_of_2.has_value());
  EXPECT_EQ(c.precision.accumulation, gemm::Accumulation::f32);
  EXPECT_EQ(c.precision.fp8_all_gather, true);
  EXPECT_EQ(c.precision.execution.attention.kernels, ops::AttentionKernels::fused);
  EXPECT_TRUE(c.precision.execution.attention.deterministic);
  EXPECT_EQ(c.schedule.lr, 3e-4);
  EXPECT_EQ(c.schedule.min_lr, 0);
  EXPECT_EQ(c.schedule.kind, optim::ScheduleKind::cosine);
  EXPECT_EQ(c.schedule.warmup, 0);
  EXPECT_EQ(c.optimizer.beta1, 0.9f);
  EXPECT_EQ(c.optimizer.beta2, 0.95f);
  EXPECT_EQ(c.optimizer.eps, 1e-8f);
  EXPECT_EQ(c.optimizer.weight_decay, 0.1f);
  EXPECT_FALSE(c.optimizer.decay_all);
  EXPECT_FALSE(c.schedule.warmup_from.has_value());
  EXPECT_EQ(c.clip, 1);
  EXPECT_EQ(c.master, DType::f32);
  EXPECT_EQ(c.moments, DType::f32);
  EXPECT_EQ(c.zero, 3);
  EXPECT_TRUE(c.reshard_after_forward);
  EXPECT_EQ(c.precision.execution.recompute, model::Recompute::none);
  EXPECT_EQ(c.save_every, 0);
  EXPECT_EQ(c.save_seconds, 1800);
  EXPECT_TRUE(c.rolling);
  EXPECT_EQ(c.keep, 0);
  EXPECT_EQ(c.log_every, 1);
  EXPECT_FALSE(c.dry_run);
}

TEST(Flags, SavesAreAStepsOrATimeApart) {
  const auto saving = [](const std::vector<std::string>& words) {
    const RunConfig c = read(words);
    return std::to_string(c.save_every) + " steps " + std::to_string(std::llround(c.save_seconds)) + " s, keep " +
           (c.rolling ? "two rolling" : std::to_string(c.keep));
  };
  EXPECT_EQ(saving({}), "0 steps 1800 s, keep two rolling");
  EXPECT_EQ(saving({"--keep", "5"}), "0 steps 1800 s, keep 5");
  EXPECT_EQ(saving({"--keep", "0"}), "0 steps 1800 s, keep 0");
  EXPECT_EQ(saving({"--save-every", "30m"}), "0 steps 1800 s, keep 0");
  EXPECT_EQ(saving({"--save-every", "90s", "--keep", "3"}), "0 steps 90 s, keep 3");
  EXPECT_EQ(saving({"--save-every", "2h"}), "0 steps 7200 s, keep 0");
  EXPECT_EQ(saving({"--save-every", "100"}), "100 steps 0 s, keep 0");
  EXPECT_EQ(saving({"--save-every", "0"}), "0 steps 0 s, keep 0");
  for (const std::string bad : {"30x", "0m", "1.5h", "m", "99999999999999999999", "1 h", "30min"})
    EXPECT_EQ(refusal({"--save-every=" + bad}),
              "--save-every: '" + bad + "' is neither a whole number nor a time, as 90s, 30m or 2h");
}

TEST(Flags, IntervalsReadBackFromAConfiguration) {
  const cli::Command command = cli::with_common(step_command());
  const auto written = [&](const std::vector<std::string>& words) {
    return cli::resolved(command, cli::parse(command, words));
  };
  for (const char* every : {"", "0", "7", "90s"}) {
    std::vector<std::string> words{"m.h5"};
    if (*every != 0) words.insert(words.end(), {"--save-every", every});
    const json::Value config = written(words);
    cli::Arguments again = cli::parse(command, std::vector<std::string>{"m.h5"});
    cli::parse_config(command, config, again, "c.json");
    EXPECT_EQ(json::dump(cli::resolved(command, again)), json::dump(config));
    EXPECT_EQ(again.has("save-every"), *every != 0);
    EXPECT_FALSE(again.has("keep"));
  }
  EXPECT_EQ(json::dump(*written({"m.h5", "--save-every", "7"}).as_object().find("save-every")), "7");
  EXPECT_EQ(json::dump(*written({"m.h5", "--save-every", "90s"}).as_object().find("save-every")), "\"90s\"");
}

TEST(Flags, EachReachesItsField) {
  const RunConfig c = read({"--precision",
                            "fp8",
                            "--recipe",
                            "rowwise",
                            "--activations",
                            "f32",
                            "--no-power-of-2-scales",
                            "--no-fp8-all-gather",
                            "--filter",
                            "a*",
                            "--filter",
                            "b",
                            "--auto-filter",
                            "--fp8-lm-head",
                            "--emulate",
                            "--accumulate",
                            "ada",
                            "--betas",
                            "0.8,0.9",
                            "--zero",
                            "1",
                            "--no-reshard-after-forward",
                            "--recompute",
                            "selective",
                            "--master",
                            "bf16",
                            "--moments",
                            "bf16",
                            "--documents",
                            "joined",
                            "-n"});
  EXPECT_EQ(c.precision.precision, Precision::fp8);
  EXPECT_EQ(c.precision.recipe_or_null(), &quant::find_recipe("rowwise"));
  EXPECT_EQ(c.precision.execution.activation, DType::f32);
  EXPECT_EQ(c.precision.power_of_2, false);
  EXPECT_FALSE(c.precision.power_of_2_scales());
  EXPECT_EQ(c.precision.fp8_all_gather, false);
  EXPECT_EQ(c.precision.selection.filters, (std::vector<std::string>{"a*", "b"}));
  EXPECT_TRUE(c.precision.selection.auto_filter && c.precision.selection.lm_head && c.precision.emulate);
  EXPECT_TRUE(store_options(c.precision, nullptr).fp8.options.emulate);
  EXPECT_EQ(store_options(c.precision, nullptr).fp8.accumulation, gemm::Accumulation::ada);
  EXPECT_EQ(c.optimizer.beta1, 0.8f);
  EXPECT_EQ(c.optimizer.beta2, 0.9f);
  EXPECT_EQ(c.zero, 1);
  EXPECT_EQ(c.documents, data::DocumentMode::joined);
  EXPECT_FALSE(c.reshard_after_forward);
  EXPECT_EQ(c.precision.execution.recompute, model::Recompute::selective);
  EXPECT_EQ(c.master, DType::bf16);
  EXPECT_EQ(c.moments, DType::bf16);
  EXPECT_TRUE(c.dry_run);
}

TEST(Flags, ThoseOfTheScheduleReachTheirFields) {
  const RunConfig c = read({"--schedule", "wsd", "--decay-steps", "5", "--decay-shape", "1-sqrt", "--schedule-steps",
                            "9", "--warmup-steps", "2", "--warmup-from", "0", "--decay", "all"});
  EXPECT_EQ(c.schedule.kind, optim::ScheduleKind::wsd);
  EXPECT_EQ(c.schedule.decay_steps, 5);
  EXPECT_EQ(c.schedule.decay_shape, optim::DecayShape::one_minus_sqrt);
  EXPECT_EQ(c.schedule_steps, 9);
  EXPECT_EQ(c.schedule.warmup, 2);
  EXPECT_EQ(c.schedule.warmup_from, 0.0);
  EXPECT_TRUE(c.optimizer.decay_all);
}

TEST(Flags, SetDefaultsOfOthers) {
  EXPECT_TRUE(read({"--precision", "fp8", "--recipe", "rowwise"}).precision.power_of_2_scales());
  EXPECT_FALSE(read({"--precision", "fp8"}).precision.power_of_2_scales());
  EXPECT_EQ(read({"--precision", "fp32"}).precision.execution.activation, DType::f32);
  EXPECT_EQ(read({"--precision", "bf16"}).precision.recipe_or_null(), nullptr);
  EXPECT_EQ(read({"--epochs", "2.5"}).epochs, 2.5);
  EXPECT_EQ(read({"--warmup-ratio", "0.25"}).warmup_ratio, 0.25);
}

TEST(Flags, ThoseOfAttentionReachItsOptions) {
  const RunConfig c = read({"--attention", "plain", "--no-deterministic"});
  EXPECT_EQ(c.precision.execution.attention.kernels, ops::AttentionKernels::plain);
  EXPECT_FALSE(c.precision.execution.attention.deterministic);
}

TEST(Flags, ContradictionsAreNamed) {
  EXPECT_EQ(refusal({"--steps", "3", "--epochs", "1"}), "--steps: contradicts --epochs");
  EXPECT_EQ(refusal({"--warmup-steps", "3", "--warmup-ratio", "0.1"}), "--warmup-steps: contradicts --warmup-ratio");
  EXPECT_EQ(refusal({"--paranoid", "3", "--no-deterministic"}), "--paranoid: contradicts --no-deterministic");
  for (const char* betas : {"0.9,0.99999999", "0.99999999,0.9"})
    EXPECT_EQ(refusal({"--betas=" + std::string(betas)}),
              "--betas: " + std::string(betas) +
                  ": decay rates are float32, in which it is 1; the largest below is 0.99999994");
  EXPECT_EQ(read({"--betas=0.9,0.99999994"}).optimizer.beta2, 0.99999994F);
  for (const char* betas : {"0.9", "0.9,", ",0.9", "0.9,1", "-0.1,0.9", "0.9,0.9,0.9", "a,b", "nan,0.9"}) {
    EXPECT_EQ(refusal({"--betas=" + std::string(betas)}),
              "--betas: " + std::string(betas) + ": needs two numbers from 0 up to, not including, 1");
  }
}

// Every name that a message of these crates gives to flag_name() is in a flag table.
TEST(Flags, MessagesNameFlagsThatExist) {
  std::set<std::string> known;
  for (const cli::Command& command : {cli::with_common(step_command()), cli::with_common(eval_command()),
                                      cli::with_common(inspect_command()), cli::with_common(plan_command())})
    for (const cli::Flag& flag : command.flags)
      known.insert({flag.name, flag.default_text == "on" ? "no-" + flag.name : ""});
  const std::regex call(R"re(flag_name\("([^"]*)"\))re");
  int calls = 0;
  for (const char* folder :
       {"lib/shard/src", "lib/settings/src", "lib/state/src", "lib/train/src", "lib/inspect/src", "lib/plan/src"}) {
    for (const auto& source : std::filesystem::directory_iterator(folder)) {
      const std::string text = read_file(source.path());
      for (std::sregex_iterator i(text.begin(), text.end(), call), end; i != end; ++i, ++calls)
        EXPECT_TRUE(known.contains((*i)[1])) << source.path() << ": " << (*i)[1];
    }
  }
  EXPECT_GT(calls, 30);
}

RunConfig settings() {
  RunConfig c = read({});
  c.seq_length = 32;
  return c;
}

TEST(Flags, ChangesAreNamedByFlags) {
  const std::vector<std::string> all = {"batch", "batch", "warmup", "lr", "seq-length"};
  EXPECT_EQ(read({"--change", "batch-size,grad-accumulation", "--change", "warmup-from,lr,seq-length"}).change, all);
  EXPECT_TRUE(read({}).change.empty());
  const std::string list =
      "is not one of data, seq-length, batch, sampler, documents, seed, optimizer, lr, schedule, warmup, min-lr, "
      "schedule-steps, decay-steps, decay-shape, weight-decay, decay, betas, eps, clip, master, moments, aux-loss, "
      "z-loss, lora-dropout, template, steps";
  for (const char* name : {"norm", "model", "", "zero"})
    EXPECT_EQ(refusal({"--change=lr," + std::string(name)}), "--change: '" + std::string(name) + "' " + list);
  EXPECT_EQ(refusal({"--change=templates"}), "--change: 'templates' " + list + " (did you mean template?)");
}

std::string unused(std::vector<std::string> words, const std::vector<std::string>& recipes) {
  if (!recipes.empty()) words.insert(words.end(), {"--precision", "fp8", "--recipe", recipes[0]});
  return note_of_unused(read(words).precision, recipes);
}

TEST(Flags, ThoseOfFp8AreNamedWithoutIt) {
  EXPECT_EQ(unused({"--recipe", "rowwise", "--no-fp8-all-gather", "--emulate", "--margin", "3"}, {}),
            "--recipe, --fp8-all-gather, --margin, --emulate: no effect without --precision fp8");
  EXPECT_EQ(unused({}, {}), "");
}

TEST(Flags, ThoseWithoutEffectUnderTheRecipeAreNamed) {
  const std::vector<std::string> delayed = {"--amax-history", "4", "--amax-algo", "most_recent", "--margin", "1"};
  EXPECT_EQ(unused(delayed, {"delayed"}), "");
  EXPECT_EQ(unused(delayed, {"tensorwise", "delayed"}), "");
  EXPECT_EQ(unused(delayed, {"tensorwise", "rowwise"}),
            "--amax-history, --amax-algo, --margin: no effect under --recipe tensorwise, rowwise");
  EXPECT_EQ(unused({"--power-of-2-scales", "--emulate"}, {"mxfp8"}),
            "--power-of-2-scales, --emulate: no effect under --recipe mxfp8");
  EXPECT_EQ(unused({"--no-power-of-2-scales", "--fp8-format", "e4m3"}, {"rowwise"}),
            "--fp8-format: no effect under --recipe rowwise");
  EXPECT_EQ(unused({"--power-of-2-scales", "--fp8-format", "e4m3"}, {"tensorwise"}), "");
  EXPECT_EQ(unused({"--no-fp8-all-gather"}, {"mxfp8"}), "--fp8-all-gather: no effect under --recipe mxfp8");
  EXPECT_EQ(unused({"--no-fp8-all-gather"}, {"rowwise"}), "");
}

EvalConfig evaluation(std::vector<std::string> words) {
  words.insert(words.begin(), {"m.h5", "--data", "d.h5", "--precision=fp8"});
  return eval_config(cli::parse(cli::with_common(eval_command()), words));
}

TEST(Flags, OfARecipeInAListApplyUnderIt) {
  const EvalConfig c = evaluation({"--recipe=bf16,rowwise,current,rowwise", "--recipe=*.o_proj=current",
                                   "--rowwise-single-copy", "--fuse-projections", "--no-power-of-2-scales"});
  EXPECT_EQ(c.recipes, (std::vector<std::string>{"bf16", "rowwise", "current"}));
  const PrecisionConfig plain = precision_under(c.precision, c, "bf16"),
                        rows = precision_under(c.precision, c, "rowwise"),
                        current = precision_under(c.precision, c, "current");
  EXPECT_EQ(plain.precision, Precision::bf16);
  EXPECT_NO_THROW(check_fp8_flags(plain));
  EXPECT_TRUE(rows.rowwise_single_copy);
  EXPECT_FALSE(rows.fuse_projections);
  EXPECT_FALSE(current.rowwise_single_copy);
  EXPECT_TRUE(current.fuse_projections);
  for (const PrecisionConfig& p : {plain, rows, current}) EXPECT_NO_THROW(check_precision(p));
  EXPECT_EQ(rows.power_of_2, false);
  const EvalConfig none = evaluation({"--recipe=tensorwise,current", "--rowwise-single-copy"});
  EXPECT_NE(error_of([&] {
              check_precision(precision_under(none.precision, none, "current"));
            }).find("--rowwise-single-copy: needs"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { evaluation({"--recipe=bf16"}); }),
            "--recipe: bf16: is to be compared with a recipe; alone it is --precision bf16");
}

// A configuration that --print-config wrote has every flag.
TEST(Flags, DefaultsInAConfigurationHaveNoNote) {
  const cli::Command command = step_command();
  cli::Arguments arguments = cli::parse(command, std::vector<std::string>{"m", "--precision=fp8", "--amax-history=4"});
  const json::Value written = cli::resolved(command, arguments);
  cli::Arguments again = cli::parse(command, std::vector<std::string>{"m", "--data=d", "--out=o", "--steps=1"});
  cli::parse_config(command, written, again);
  EXPECT_EQ(note_of_unused(step_config(again).precision, {"tensorwise"}),
            "--amax-history: no effect under --recipe tensorwise");
}

PrecisionConfig precision_with(std::vector<std::string> words, const json::Value& configuration) {
  const cli::Command command = step_command();
  words.insert(words.begin(), {"m", "--data=d", "--out=o", "--steps=1"});
  cli::Arguments arguments = cli::parse(command, words);
  cli::parse_config(command, configuration, arguments);
  return step_config(arguments).precision;
}

// A recommendation of fp8-inspect computes what was measured, and has no flag without effect.
TEST(Flags, AConfigurationOfAPrecisionReadsBackToIt) {
  const json::Value none = json::object({});
  for (const char* flags : {"--recipe=tensorwise", "--fp8-format=e4m3 --activations=f32 --accumulate=hopper",
                            "--recipe=rowwise --rowwise-single-copy --no-fp8-all-gather", "--no-fp8-all-gather",
                            "--recipe=rowwise --rowwise-single-copy --no-power-of-2-scales",
                            "--recipe=rowwise --no-power-of-2-scales --fp8-lm-head --auto-filter",
                            "--recipe=delayed --amax-history=4 --amax-algo=most_recent --margin=1 --fp8-format=e4m3",
                            "--power-of-2-scales --emulate --attention=plain --filter=*q_proj --filter=*k_proj",
                            "--recipe=mxfp8 --fp8-gemms=dgrad --fp8-gemms=*up_proj=forward,wgrad"}) {
    std::istringstream in(std::string("--precision=fp8 ") + flags);
    const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    const PrecisionConfig given = precision_with(words, none);
    const json::Value written = configuration_of(given);
    const PrecisionConfig read = precision_with({}, written);
    EXPECT_EQ(json::dump(phase_of(read)), json::dump(phase_of(given))) << flags;
    EXPECT_EQ(read.emulate, given.emulate) << flags;
    EXPECT_EQ(read.execution.attention.kernels, given.execution.attention.kernels) << flags;
    EXPECT_EQ(note_of_unused(read, {read.recipe}), "") << flags;
  }
  const std::string plain = R"({"precision":"fp8","recipe":"tensorwise"})";
  EXPECT_EQ(json::dump(configuration_of(precision_with({"--precision=fp8", "--margin=2"}, none))), plain);
}

std::string difference(const std::function<void(RunConfig&)>& change, std::int64_t batch = 8,
                       const std::string& model = "m", const std::string& data = "d") {
  RunConfig now = settings();
  change(now);
  return error_of([&] {
    (void)changed_settings(fixed_settings(settings(), {8, "m", "d"}), fixed_settings(now, {batch, model, data}), {},
                           "run");
  });
}

// The message of a run that began with another setting.
std::string refused(const std::string& what) {
  const std::string name = what.starts_with("global") ? "batch"
                           : what.starts_with("--")   ? setting_name(what.substr(2, what.find(' ') - 2))
                                                      : "";
  return "run: this run was started with another " + what + "; use another --out, or the same settings to resume" +
         (name.empty() ? "" : ", or --change " + name + " to go on with the new ones");
}

TEST(Resume, SettingsThatMayNotChangeAreNamed) {
  const auto nothing = [](RunConfig&) {};
  EXPECT_EQ(difference(nothing), "no error");
  EXPECT_EQ(difference(nothing, 16), refused("global batch (ranks x --batch-size x --grad-accumulation) (8, now 16)"));
  EXPECT_EQ(difference(nothing, 8, "n"), refused("MODEL"));
  EXPECT_EQ(difference(nothing, 8, "m", "e"), refused("--data"));
  EXPECT_EQ(difference([](RunConfig& c) { c.seq_length = 64; }), refused("--seq-length (32, now 64)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.sampler = data::SamplerKind::sequential; }),
            refused("--sampler (\"shuffle\", now \"sequential\")"));
  EXPECT_EQ(difference([](RunConfig& c) { c.seed = 3; }), refused("--seed (0, now 3)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.optimizer.algorithm = optim::Algorithm::muon; }),
            refused("--optimizer (\"adamw\", now \"muon\")"));
  EXPECT_EQ(difference([](RunConfig& c) { c.optimizer.muon_scale = optim::MuonScale::original; }), "no error");
  EXPECT_EQ(difference([](RunConfig& c) { c.schedule.lr = 1e-3; }), refused("--lr (3e-04, now 0.001)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.schedule.min_lr = 1e-5; }), refused("--min-lr (0.0, now 1e-05)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.schedule.kind = optim::ScheduleKind::linear; }),
            refused("--schedule (\"cosine\", now \"linear\")"));
  EXPECT_EQ(difference([](RunConfig& c) { c.schedule.warmup = 2; }), refused("--warmup-steps (0, now 2)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.schedule.warmup_from = 0.0; }),
            refused("--warmup-from (not given, now 0.0)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.schedule.decay_steps = 2; }), refused("--decay-steps (0, now 2)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.optimizer.decay_all = true; }),
            refused("--decay (\"matrices\", now \"all\")"));
  EXPECT_EQ(difference([](RunConfig& c) { c.optimizer.weight_decay = 0; }), refused("--weight-decay (0.1, now 0.0)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.optimizer.beta2 = 0.9f; }), refused("--betas ([0.9,0.95], now [0.9,0.9])"));
  EXPECT_EQ(difference([](RunConfig& c) { c.optimizer.eps = 1e-6f; }), refused("--eps (1e-08, now 1e-06)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.clip = 0; }), refused("--clip (1.0, now 0.0)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.aux_loss = 0.01; }), refused("--aux-loss (0.0, now 0.01)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.z_loss = 0.001; }), refused("--z-loss (0.0, now 0.001)"));
  EXPECT_EQ(difference([](RunConfig& c) { c.master = DType::bf16; }), refused("--master (\"fp32\", now \"bf16\")"));
  EXPECT_EQ(difference([](RunConfig& c) { c.moments = DType::bf16; }), refused("--moments (\"fp32\", now \"bf16\")"));
  EXPECT_EQ(difference([](RunConfig& c) {
              c.batch_size = 1, c.grad_accumulation = 8, c.steps = 9, c.until_step = 3, c.zero = 1, c.save_every = 2;
              c.precision.precision = Precision::fp8, c.precision.recipe = "rowwise",
              c.precision.execution.recompute = model::Recompute::full;
              c.reshard_after_forward = false, c.keep = 1, c.log_every = 5, c.eval_every = 2, c.eval_data = "x";
            }),
            "no error");
  const RunConfig first = settings();
  RunConfig now = first;
  now.schedule.lr = 1e-3, now.clip = 0;
  const json::Value before = fixed_settings(first, {8, "m", "d"}), after = fixed_settings(now, {16, "m", "d"});
  EXPECT_HOLDS(error_of([&] { (void)changed_settings(before, after, {"clip"}, "run"); }), "or --change batch,lr to");
  const std::vector<SettingChange> changed = changed_settings(before, after, {"clip", "lr", "batch", "eps"}, "run");
  ASSERT_EQ(changed.size(), 3U);
  EXPECT_EQ(changed[0].name + changed[1].name + changed[2].name, "batchlrclip");
  EXPECT_EQ(changed[0].old, json::Value(8));
  EXPECT_EQ(changed[0].value, json::Value(16));
  EXPECT_TRUE(changed_settings(before, before, {"lr"}, "run").empty());
  // The warmup of a ratio follows --steps, which may change.
  RunConfig ratio = settings(), longer = settings();
  ratio.warmup_ratio = longer.warmup_ratio = 0.1;
  ratio.schedule.warmup = 1, longer.schedule.warmup = 2;
  EXPECT_EQ(fixed_settings(ratio, {8, "m", "d"}), fixed_settings(longer, {8, "m", "d"}));
}

TEST(Ranks, TheSameFlagsOnOneRankAreTheSame) {
  const auto one = comm::solo();
  check_same_flags(*one, json::object({{"data", "a"}, {"out", "b"}, {"eval-data", json::Value()}, {"lr", 1.0}}),
                   "m.h5");
  const json::Value a = json::object({{"steps", 1}, {"lr", 1.0}}), b = json::object({{"steps", 1}, {"lr", 2.0}});
  EXPECT_EQ(first_difference(a, b, " here, "), "--lr (1.0 here, 2.0)");
  EXPECT_EQ(first_difference(a, a, ""), "");
}

}  // namespace
}  // namespace fp8::settings
