// Length and batches as numbers, and the model and the tokenizer that a run needs.
#include "finish.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "mapping.h"

namespace fp8::foreign {
namespace {

namespace fs = std::filesystem;

// Sequences of a step above which a batch is taken for a mistake; products with numbers of epochs stay exact.
constexpr double kMostSequences = 1e15;

std::int64_t size_of(const Import& import, const char* flag) {
  const json::Value* value = import.flags.find(flag);
  return value != nullptr && value->is_int() ? std::max<std::int64_t>(value->as_int(), 1) : 1;
}

// Data-parallel ranks.
std::int64_t samplers_of(Import& import) {
  const std::int64_t ranks = ranks_of(import), model = product_of({size_of(import, "tp"), size_of(import, "pp")});
  if (ranks % model == 0) return ranks / model;
  import.missing.push_back("ranks: " + std::to_string(ranks) + " cannot be divided by tensor- and pipeline-parallel " +
                           std::to_string(model) + "; --ranks names the number of processes");
  return 1;
}

void set_batches(Import& import, std::int64_t samplers) {
  Batches& b = import.batches;
  if (b.global && *b.global % (b.micro * samplers) != 0)
    import.missing.push_back("batch: " + std::to_string(*b.global) + " sequences are not " + std::to_string(samplers) +
                             " ranks times micro-batches of " + std::to_string(b.micro) +
                             "; --ranks names the number of processes");
  if (b.global) b.accumulation = std::max<std::int64_t>(*b.global / (b.micro * samplers), 1);
  if (static_cast<double>(b.micro) * static_cast<double>(samplers) * static_cast<double>(b.accumulation) >
      kMostSequences)
    throw Error(import.documents.front().path + ": " + std::to_string(b.accumulation) + " micro-batches of " +
                std::to_string(b.micro) + " sequences on " + std::to_string(samplers) +
                " ranks: more sequences in a step than " + format_short(kMostSequences, 1));
  import.set("batch-size", b.micro);
  import.set("grad-accumulation", b.accumulation);
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Steps of `rows` in Duration::epochs, as Hugging Face's Trainer counts them: an epoch has whole micro-batches, and
// those that remain after whole steps are a step too.
std::int64_t steps_of(const Duration& d, const Batches& b, std::int64_t rows, std::int64_t samplers) {
  const std::int64_t each = b.micro * samplers;
  if (d.rounds_once) {
    const double step = static_cast<double>(each) * static_cast<double>(b.accumulation);
    return static_cast<std::int64_t>(std::min(std::ceil(static_cast<double>(rows) * d.epochs / step), 1e15));
  }
  const std::int64_t micro = d.keeps_last_batch ? ceil_divide(rows, each) : rows / each;
  const std::int64_t epoch = std::max<std::int64_t>(ceil_divide(micro, b.accumulation), 1);
  return whole_part(std::ceil(d.epochs * static_cast<double>(epoch)));
}

void set_warmup(Import& import, std::int64_t steps) {
  const Duration& d = import.duration;
  std::int64_t warmup = whole_part(std::ceil(d.warmup_ratio * static_cast<double>(steps)));
  if (d.warmup_steps) warmup = *d.warmup_steps;
  if (d.warmup_rule) warmup = d.warmup_rule(steps);
  import.set("warmup-steps", warmup);
  if (warmup > 0 && d.warmup_from) import.set("warmup-from", *d.warmup_from);
  if (d.decay_rule) import.set("decay-steps", d.decay_rule(steps, warmup));
}

// Rows for what no trainer's key says: an incomplete last batch, and means of means.
void add_differences(Import& import, std::optional<std::int64_t> rows, std::int64_t samplers) {
  const auto add = [&](const char* key, json::Value value, const std::string& why) {
    import.answers.push_back({import.documents.front().path, key, std::move(value), "", Class::differs, why});
  };
  const std::int64_t batch = product_of({import.batches.micro, import.batches.accumulation, samplers});
  if (rows && *rows % batch != 0)
    add("(last batch)", *rows % batch,
        import.duration.keeps_last_batch
            ? "the last step of an epoch has so many sequences there; here it goes on with those of the next epoch"
            : "so many sequences are left out at the end of an epoch there; here the next epoch follows at once");
  if (import.one_loss_per_rank && samplers * import.batches.accumulation > 1)
    add("(loss)", true,
        "a mean for each micro-batch of a rank is averaged there; here all targets of a step count alike");
}

// Adds the numbers that are known now to rows that name --steps or --warmup-steps alone.
void fill_in(Import& import) {
  const auto number = [&](const char* flag) {
    const json::Value* value = import.flags.find(flag);
    return value != nullptr && value->is_int() ? " " + std::to_string(value->as_int()) : std::string();
  };
  for (Answer& a : import.answers) {
    if (a.here == "--steps") a.here += number("steps");
    if (a.here == "--warmup-steps" || a.here.starts_with("--warmup-steps --"))
      a.here.insert(std::string("--warmup-steps").size(), number("warmup-steps"));
  }
}

void set_steps(Import& import, std::int64_t samplers) {
  Duration& d = import.duration;
  std::optional<std::int64_t> steps = d.steps;
  const bool counts = !steps || (d.both_limit && d.epochs > 0);
  const std::optional<std::int64_t> rows = counts || import.data.eval_records ? count_rows(import) : std::nullopt;
  if (rows && counts) {
    const std::int64_t in_epochs = steps_of(d, import.batches, *rows, samplers);
    steps = steps ? std::min(*steps, in_epochs) : in_epochs;
  }
  add_differences(import, rows, samplers);
  if (steps) {
    import.set("steps", std::max<std::int64_t>(*steps, 1));
    set_warmup(import, std::max<std::int64_t>(*steps, 1));
    return;
  }
  // Without the data the length stays in epochs, so that run.json is whole.
  import.set("epochs", d.epochs);
  if (d.warmup_steps) return set_warmup(import, 0);
  if (d.warmup_ratio > 0) import.set("warmup-ratio", d.warmup_ratio);
  if (d.warmup_ratio > 0 && d.warmup_from) import.set("warmup-from", *d.warmup_from);
}

}  // namespace

std::string absolute_path(const std::string& path) { return fs::absolute(path).lexically_normal().string(); }

std::int64_t ranks_of(const Import& import) { return import.options.ranks.value_or(import.ranks.value_or(1)); }

void finish(Import& import) {
  find_model(import);
  if (!import.options.ranks && !import.ranks)
    import.add_default("(ranks)", 1, "mpirun -n 1", "no file states the number of GPUs; --ranks N sets it");
  const std::int64_t samplers = samplers_of(import);
  set_batches(import, samplers);
  set_steps(import, samplers);
  if (import.data.length > 0) import.set("seq-length", import.data.length);
  if (import.data.chat_template) import.set("any-template", true);  // the trainer does not compare templates either
  if (!import.flags.contains("optimizer")) import.set("optimizer", "adamw");
  import.set("data", "data.h5");
  if (!import.data.eval.empty())
    import.set("eval-data", "eval.h5");
  else if (import.data.eval_share > 0)
    import.set("eval-data", "data-eval.h5");
  import.set("out", "run");
  fill_in(import);
}

}  // namespace fp8::foreign
