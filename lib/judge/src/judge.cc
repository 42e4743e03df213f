// Candidates one after the other, then further attempts if none explains, and the verdict.
#include "fp8/judge/judge.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "candidate.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/resume.h"
#include "fp8/state/run_folder.h"
#include "plots.h"

namespace fp8::judge {
namespace {

constexpr const char* kServer = "/server";
constexpr std::int64_t kGridTokens = 32768;  // tokens from which temperatures are fitted
constexpr std::int64_t kFewSequences = 64;   // rollouts of further attempts

// A recipe with scales that are not powers of two, as servers have.
bool is_server(const std::string& name) { return name.ends_with(kServer); }

settings::PrecisionConfig precision_of(const std::string& name) {
  settings::PrecisionConfig p;
  p.given = {"precision"};
  if (name == settings::kExactRecipe) {
    p.precision = settings::Precision::fp32;
    p.execution.activation = dtype::DType::f32;
  } else if (name != settings::kPlainRecipe) {
    p.precision = settings::Precision::fp8;
    p.recipe = is_server(name) ? name.substr(0, name.size() - std::string_view(kServer).size()) : name;
    p.given.emplace_back("recipe");
    if (is_server(name)) p.power_of_2 = false;
  }
  return p;
}

// Size and time of the last change of a file; both are 0 if it does not exist.
struct FileState {
  std::uintmax_t size = 0;
  std::filesystem::file_time_type time{};
  bool operator==(const FileState&) const = default;
};

std::vector<FileState> states_of(const std::vector<std::string>& paths) {
  std::vector<FileState> states;
  for (const std::string& path : paths) {
    std::error_code no_size, no_time;
    const FileState state{std::filesystem::file_size(path, no_size), std::filesystem::last_write_time(path, no_time)};
    states.push_back(no_size || no_time ? FileState{} : state);
  }
  return states;
}

// The objects that all parts of a judgement share.
struct Session {
  const JudgeConfig& config;
  comm::Communicator& host_comm;
  state::Journal& journal;
  std::vector<ckpt::Checkpoint> checkpoints{};  // MODEL, then those of --also
  hf::ModelConfig model{};
  Contents contents{};
  std::vector<FileState> rollouts{};  // before they are read

  RolloutReader reader(std::int64_t sequences) const {
    return {config.rollouts, {config.form, config.trainer, model.vocab_size, sequences}};
  }
};

void check_fits(const Session& session, const ckpt::Checkpoint& other) {
  const std::int64_t v = hf::parse_config(other.config(), other.path()).vocab_size;
  if (v < session.model.vocab_size)
    throw Error(other.path() + ": has a vocabulary of " + std::to_string(v) + ", " + session.config.model + " one of " +
                std::to_string(session.model.vocab_size));
}

// The candidate `name` of a checkpoint. Throws Error if it does not fit.
CandidateSpec resolve(const Session& session, std::size_t checkpoint, const std::string& name) {
  CandidateSpec spec{.checkpoint = &session.checkpoints[checkpoint],
                     .other_checkpoint = checkpoint > 0,
                     .precision = precision_of(name)};
  if (spec.precision.precision == settings::Precision::fp8) spec.recipe = name;
  spec.setup = train::resolve_model({spec.precision, session.contents.longest - 1, session.config.batch_size, true},
                                    *spec.checkpoint);
  return spec;
}

// All candidates of a checkpoint. Those that do not fit are left out with a note if nobody asked for them by name.
std::vector<CandidateSpec> specs_of(const Session& session, std::size_t checkpoint, std::vector<std::string>& notes) {
  std::vector<CandidateSpec> specs;
  std::string left_out, reason;  // the last of the reasons
  std::vector<std::string> names{settings::kExactRecipe, settings::kPlainRecipe};
  names.insert(names.end(), session.config.recipes.begin(), session.config.recipes.end());
  for (const std::string& name : names) {
    const bool asked = name != settings::kExactRecipe && name != settings::kPlainRecipe && !session.config.all_recipes;
    try {
      specs.push_back(resolve(session, checkpoint, name));
    } catch (const Error& e) {
      if (asked) throw;
      left_out += (left_out.empty() ? "" : ", ") + name;
      reason = e.what();
    }
  }
  if (!left_out.empty()) notes.push_back("leaves out " + left_out + ": " + reason);
  if (specs.empty()) throw Error(session.checkpoints[checkpoint].path() + ": " + reason);
  return specs;
}

// Collects the tokens of one candidate.
class Collector {
 public:
  explicit Collector(std::int64_t worst) : figures_(std::max<std::int64_t>(worst, 1)) {}
  void add(std::int64_t number, const Rollout& r, const Scored& scored) {
    std::size_t grid = 0;
    const double stated = 1 / r.temperature.value_or(1);
    for (std::size_t i = 1; i < r.ids.size(); ++i) {
      if (!is_judged(r, i)) continue;
      const Token token{number, static_cast<std::int64_t>(i), r.ids[i], r.logprobs[i], scored.logprobs[i - 1]};
      figures_.add(token);
      if (i > 1) add_to(shifted_.behind, number, k3_of(token.q - scored.logprobs[i - 2]));
      if (i + 1 < r.ids.size()) add_to(shifted_.ahead, number, k3_of(token.q - scored.logprobs[i]));
      if (!scored.grids.empty()) fit_.add(token, scored.grids[grid++], stated);
    }
  }
  Candidate finish(const CandidateSpec& spec, std::int64_t tests) {
    return {.checkpoint = spec.checkpoint->path(),
            .other_checkpoint = spec.other_checkpoint,
            .precision = std::string(settings::name_of(spec.precision.precision)),
            .recipe = spec.recipe,
            .figures = std::move(figures_),
            .shifted = std::move(shifted_),
            .temperature = fit_.fit(tests)};
  }

 private:
  Figures figures_;
  Shifted shifted_;
  TemperatureFit fit_;
};

Candidate compute(const Session& session, const CandidateSpec& spec, std::int64_t tests, std::int64_t sequences,
                  const Transform& transform = {}) {
  Collector collector(session.config.worst);
  const ScorePlan plan{
      .longest = session.contents.longest + (transform ? 1 : 0),
      .batch_size = session.config.batch_size,
      .sequences = sequences > 0 ? std::min(sequences, session.contents.sequences) : session.contents.sequences,
      .grid_tokens = transform ? 0 : kGridTokens};
  score(spec, session.config, plan, session.host_comm, session.journal,
        BatchReader(session.reader(sequences), session.config.batch_size, transform),
        [&](std::int64_t number, const Rollout& r, const Scored& scored) { collector.add(number, r, scored); });
  return collector.finish(spec, tests);
}

json::Value record_of(const Candidate& c, const Session& session) {
  json::Value record = json::object({{"type", "candidate"},
                                     {"checkpoint", c.checkpoint},
                                     {"precision", c.precision},
                                     {"recipe", c.recipe.empty() ? json::Value() : json::Value(c.recipe)}});
  json::Object& o = record.as_object();
  c.figures.write(o);
  o.set("skipped", session.contents.skipped());
  if (c.temperature) {
    const TemperatureFit::Result& t = *c.temperature;
    o.set("temperature", json::object({{"value", t.temperature},
                                       {"k3", t.k3},
                                       {"k3_held_out", t.k3_held_out},
                                       {"k3_held_out_at_1", t.k3_at_one},
                                       {"beats_1", t.beats_one}}));
  }
  o.set("k3_one_late", mean_over(c.shifted.behind).value);
  o.set("k3_one_early", mean_over(c.shifted.ahead).value);
  return record;
}

void emit_worst(const Candidate& c, const Session& session) {
  if (session.config.worst == 0) return;
  for (const Token& t : c.figures.worst())
    session.journal.emit(json::object({{"type", "token"},
                                       {"checkpoint", c.checkpoint},
                                       {"candidate", c.name()},
                                       {"sequence", t.sequence},
                                       {"position", t.position},
                                       {"id", t.id},
                                       {"logprob", t.q},
                                       {"candidate_logprob", t.p},
                                       {"d", t.d()}}));
}

void without_first(Rollout& r) {
  if (r.ids.size() < 2) return;
  r.ids.erase(r.ids.begin());
  r.logprobs.erase(r.logprobs.begin());
  r.mask.erase(r.mask.begin());
}

Transform with_bos(std::int32_t id) {
  return [id](Rollout& r) {
    r.ids.insert(r.ids.begin(), id);
    r.logprobs.insert(r.logprobs.begin(), NAN);
    r.mask.insert(r.mask.begin(), 0);
  };
}

std::string_view name_of(Change change) {
  switch (change) {
    case Change::none:
      return "none";
    case Change::temperature:
      return "temperature";
    case Change::behind:
      return "one token late";
    case Change::ahead:
      return "one token early";
    case Change::without_first:
      return "without the first token";
    case Change::with_bos:
      return "with the beginning-of-sequence token";
  }
  return "?";
}

// A candidate whose rollouts begin otherwise. Collective.
Explanation begun_otherwise(const Session& session, const CandidateSpec& spec, std::size_t candidate, Change change,
                            const Transform& transform) {
  const Candidate c = compute(session, spec, 1, kFewSequences, transform);
  session.journal.emit(json::object({{"type", "explanation"},
                                     {"checkpoint", c.checkpoint},
                                     {"candidate", c.name()},
                                     {"change", name_of(change)},
                                     {"tokens", c.figures.tokens()},
                                     {"k3", c.figures.k3()}}));
  return {.candidate = candidate, .change = change, .k3 = c.figures.k3(), .sequences = c.figures.sequences()};
}

// Other beginnings of the rollouts, of the candidate that is nearest without a change, and, where that leaves at most
// half of its k3, of the other candidates. Collective.
std::vector<Explanation> other_beginnings(const Session& session, const std::vector<CandidateSpec>& specs,
                                          const std::vector<Candidate>& candidates) {
  const auto nearest = std::ranges::min_element(candidates, {}, [](const Candidate& c) { return c.figures.k3(); });
  const auto first = static_cast<std::size_t>(nearest - candidates.begin());
  std::vector<std::pair<Change, Transform>> changes{{Change::without_first, without_first}};
  if (const auto bos = session.model.bos_token_id; bos && *bos < session.model.vocab_size)
    changes.emplace_back(Change::with_bos, with_bos(static_cast<std::int32_t>(*bos)));
  std::vector<Explanation> more;
  for (const auto& [change, transform] : changes) {
    more.push_back(begun_otherwise(session, specs[first], first, change, transform));
    if (more.back().k3 > nearest->figures.k3() / 2) continue;
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (i != first) more.push_back(begun_otherwise(session, specs[i], i, change, transform));
  }
  return more;
}

json::Value record_of(const Verdict& v, const std::vector<Candidate>& candidates) {
  const Candidate& c = candidates[v.best.candidate];
  json::Array equal;
  for (const std::size_t i : v.equal) equal.emplace_back(candidates[i].name());
  const bool tempered = v.best.change == Change::temperature;
  return json::object({{"type", "verdict"},
                       {"explained", v.explained},
                       {"candidate", v.explained ? json::Value(c.name()) : json::Value()},
                       {"checkpoint", c.checkpoint},
                       {"nearest", c.name()},
                       {"change", v.best.change == Change::none ? json::Value() : json::Value(name_of(v.best.change))},
                       {"temperature", tempered ? json::Value(v.best.temperature) : json::Value()},
                       {"k3", v.best.k3},
                       {"equal", std::move(equal)},
                       {"text", v.text}});
}

// The candidate on which a gate bears: the only recipe that was asked for, else bf16, else the first.
const Candidate& gated(const std::vector<Candidate>& candidates, const JudgeConfig& config) {
  const std::string wanted =
      config.recipes.size() == 1 && !config.all_recipes ? config.recipes.front() : std::string(settings::kPlainRecipe);
  const auto found =
      std::ranges::find_if(candidates, [&](const Candidate& c) { return c.name() == wanted && !c.other_checkpoint; });
  return found != candidates.end() ? *found : candidates.front();
}

bool passes(const std::vector<Candidate>& candidates, const Session& session) {
  if (!session.config.gate) return true;
  const Gate& gate = *session.config.gate;
  const Candidate& c = gated(candidates, session.config);
  const double value = figure_of(gate, c.figures);
  const bool passed = value >= gate.low && value <= gate.high;
  session.journal.emit(json::object({{"type", "gate"},
                                     {"name", gate.name},
                                     {"candidate", c.name()},
                                     {"figure", gate.figure},
                                     {"value", value},
                                     {"low", gate.low},
                                     {"high", gate.high},
                                     {"passed", passed}}));
  return passed;
}

// Opens the checkpoints, reads the rollouts once and resolves the candidates. Collective.
std::vector<CandidateSpec> prepare(Session& session) {
  const JudgeConfig& config = session.config;
  session.checkpoints.push_back(state::open_on_all_ranks(session.host_comm, config.model));
  for (const std::string& path : config.also)
    session.checkpoints.push_back(state::open_on_all_ranks(session.host_comm, path));
  std::vector<CandidateSpec> specs;
  std::vector<std::string> notes;
  json::Value shared = json::object({});
  comm::agree(session.host_comm, [&] {
    const ckpt::Checkpoint& model = session.checkpoints.front();
    session.model = hf::parse_config(model.config(), model.path());
    for (const ckpt::Checkpoint& c : session.checkpoints) {
      check_fits(session, c);
      shared.as_object().set("model " + c.path(), c.digest());
    }
    if (comm::is_writer(session.host_comm)) check_plot(config);
    session.rollouts = states_of(config.rollouts);
    session.contents = scan(session.reader(config.sequences));
    shared.as_object().set("tokens of rollouts", session.contents.ids);
    for (std::size_t i = 0; i < session.checkpoints.size(); ++i)
      for (CandidateSpec& spec : specs_of(session, i, notes)) specs.push_back(std::move(spec));
    const std::string note = settings::note_of_length(session.contents.longest - 1, session.model);
    if (!note.empty()) notes.push_back(note);
  });
  settings::check_same_on_all_ranks(session.host_comm, shared);
  for (const ckpt::Checkpoint& c : session.checkpoints)
    for (const std::string& message : c.passed_over()) session.journal.note(message);
  for (const std::string& note : notes) session.journal.note(note);
  return specs;
}

// Throws Error if a file of rollouts, which each candidate reads, is no longer as it was. Collective.
void check_unchanged(const Session& session) {
  comm::agree(session.host_comm, [&] {
    const std::vector<FileState> now = states_of(session.config.rollouts);
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i] != session.rollouts[i])
        throw Error(session.config.rollouts[i] + ": changed while it was read, so candidates read different rollouts");
  });
}

json::Value record_of(const Contents& c) {
  return json::object({{"type", "rollouts"},
                       {"sequences", c.sequences},
                       {"ids", c.ids},
                       {"tokens", c.judged},
                       {"skipped", json::object({{"first", c.first}, {"masked", c.masked}, {"missing", c.missing}})},
                       {"temperature", c.temperature ? json::Value(*c.temperature) : json::Value()}});
}

}  // namespace

std::vector<std::string> candidate_recipes() {
  std::vector<std::string> names;
  for (const quant::Recipe& r : quant::recipes()) names.emplace_back(r.name);
  for (const char* name : {"rowwise", "blockwise"}) names.push_back(std::string(name) + kServer);
  return names;
}

Exit judge(const JudgeConfig& config, comm::Communicator& host_comm, const state::Hooks& hooks) {
  state::Journal journal(hooks, host_comm);
  Session session{config, host_comm, journal};
  const std::vector<CandidateSpec> specs = prepare(session);
  journal.emit(record_of(session.contents));
  std::vector<Candidate> candidates;
  for (const CandidateSpec& spec : specs) {
    candidates.push_back(compute(session, spec, std::ssize(specs), config.sequences));
    journal.emit(record_of(candidates.back(), session));
    emit_worst(candidates.back(), session);
  }
  Explanation best = best_of(candidates, {});
  if (!explains(best, candidates)) best = best_of(candidates, other_beginnings(session, specs, candidates));
  check_unchanged(session);
  const bool passed = passes(candidates, session);
  if (!config.plot.empty())
    comm::agree(host_comm, [&] {
      if (comm::is_writer(host_comm)) plot_candidates(candidates, config.plot, config.force);
    });
  Verdict verdict = verdict_of(candidates, std::move(best));
  if (verdict.best.change == Change::temperature && session.contents.temperatures)
    verdict.text += "; temperatures are relative to those of the records";
  journal.emit(record_of(verdict, candidates));
  journal.rethrow();
  return passed ? Exit::done : Exit::no;
}

}  // namespace fp8::judge
