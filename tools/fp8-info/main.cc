// fp8-info: shows the contents of a checkpoint, verifies it, compares checkpoints and safetensors files. See
// fp8-info(1).
#include <algorithm>
#include <string>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/convert/describe.h"
#include "fp8/convert/fit.h"
#include "fp8/h5/types.h"
#include "fp8/model/record.h"
#include "report.h"

namespace {

using namespace fp8;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-info";
  c.about = "show the contents of a checkpoint, verify it, compare two, or gradients";
  c.example = "fp8-info model.h5 --verify";
  c.positionals = {cli::checkpoint_argument("checkpoint", "CHECKPOINT|-", "checkpoint to show")};
  c.flags = {
      {.name = "verify", .help = "first check every byte against the stored digests"},
      {.name = "diff",
       .kind = cli::FlagKind::path,
       .metavar = "OTHER",
       .help = "compare the tensors with those of OTHER; either may be a safetensors file or a folder of them"},
      {.name = "bound",
       .kind = cli::FlagKind::real,
       .metavar = "X",
       .help = "with --diff: compare weights by relative L2, with status 1 if one is above X [0]",
       .min = 0,
       .max = 1e300},
      {.name = "names",
       .kind = cli::FlagKind::choice,
       .metavar = "SYSTEM",
       .help = "with --diff: system whose names the tensors may have [hf]",
       .choices = {"hf", "torchtitan", "megatron"}},
      {.name = "statistics",
       .help = "show mean, rms, largest magnitude and number of non-finite values of each tensor"},
      cli::json_flag(),
  };
  return c;
}

int show_tokens(const cli::Arguments& arguments, const std::string& path) {
  if (arguments.has("diff")) throw Error(path + ": a token file, not a checkpoint; it cannot be compared");
  const data::TokenFile file(path, arguments.flag("verify"));
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(info::tokens_record(path, file.info()));
  } else {
    out.text(info::tokens_text(path, file.info()));
  }
  return static_cast<int>(Exit::done);
}

// Opens a checkpoint, and says which damaged ones of its run were passed over for it.
ckpt::Checkpoint open(const std::string& argument) {
  ckpt::Checkpoint checkpoint = model::open_checkpoint(argument);
  for (const std::string& message : checkpoint.passed_over()) cli::print_note("fp8-info", message);
  return checkpoint;
}

int show_distance(const cli::Arguments& arguments, const ckpt::Checkpoint& a, const model::ProgressSink& sink) {
  const ckpt::Checkpoint b = open(arguments.text("diff"));
  if (arguments.flag("verify")) b.verify();
  const convert::Distance distance = convert::distance(a, b, sink);
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(info::distance_record(a.path(), b.path(), distance));
  } else {
    out.text(info::distance_text(a.path(), b.path(), distance));
  }
  return static_cast<int>(distance.equal ? Exit::done : Exit::no);
}

// Whether tensors of any source are compared, not two checkpoints.
bool compares_tensors(const cli::Arguments& arguments, const std::string& path) {
  if (!arguments.has("diff")) return false;
  return arguments.has("bound") || arguments.has("names") || convert::TensorSet::is_safetensors(path) ||
         convert::TensorSet::is_safetensors(arguments.text("diff"));
}

convert::TensorNames names_of(const cli::Arguments& arguments) {
  const std::string system = arguments.has_value("names") ? arguments.text("names") : "hf";
  if (system == "torchtitan") return convert::TensorNames::torchtitan;
  return system == "megatron" ? convert::TensorNames::megatron : convert::TensorNames::huggingface;
}

int show_fit(const cli::Arguments& arguments, const std::string& path, const model::ProgressSink& sink,
             cli::Progress& progress) {
  const double bound = arguments.has_value("bound") ? arguments.real("bound") : 0;
  const convert::TensorNames names = names_of(arguments);
  std::vector<convert::TensorSet> sets;
  for (const std::string& one : {path, arguments.text("diff")}) {
    if (model::is_token_file(one)) throw Error(one + ": a token file; it cannot be compared");
    if (arguments.flag("verify")) {
      if (convert::TensorSet::is_safetensors(one))
        throw Error(cli::flag_name("verify") + ": " + one + ": safetensors files have no digests");
      model::open_checkpoint(one).verify();
    }
    sets.emplace_back(one, names);
    for (const std::string& message : sets.back().passed_over()) cli::print_note("fp8-info", message);
    if (sets.back().tensors().empty()) throw Error(one + ": has no tensors to compare");
  }
  convert::split_fused(sets[0], sets[1]);
  const convert::Fit fit = convert::fit(sets[0], sets[1], sink);
  progress.done();
  const std::vector<std::string> suggestions = convert::suggestions(fit, bound);
  cli::Output out;
  if (arguments.flag("json")) {
    for (const convert::TensorFit& t : fit.tensors) out.json(info::fit_record(t));
    for (const std::string& text : suggestions) cli::print_note("fp8-info", text);
  } else {
    out.text(info::fit_text(path, arguments.text("diff"), fit, bound, suggestions));
  }
  const bool within = std::ranges::all_of(fit.tensors, [&](const convert::TensorFit& t) { return t.within(bound); });
  return static_cast<int>(within ? Exit::done : Exit::no);
}

int inform(const cli::Arguments& arguments) {
  const std::string path = model::resolve_checkpoint_argument(arguments.positional("checkpoint"));
  cli::Progress progress(arguments.flag("quiet"));
  const model::ProgressSink sink = [&](const std::string& tensor, std::size_t i, std::size_t n) {
    progress.update(std::to_string(i) + "/" + std::to_string(n) + " " + tensor);
  };
  if (!arguments.has("diff") && (arguments.has("bound") || arguments.has("names")))
    throw Error(cli::flag_name(arguments.has("bound") ? "bound" : "names") + ": needs " + cli::flag_name("diff"));
  if (compares_tensors(arguments, path)) return show_fit(arguments, path, sink, progress);
  if (model::is_token_file(path)) return show_tokens(arguments, path);
  if (path.ends_with(".safetensors"))
    throw Error(path + ": a safetensors file, not a checkpoint; it can be compared, with " + cli::flag_name("diff"));
  const ckpt::Checkpoint checkpoint = open(path);
  if (arguments.flag("verify")) checkpoint.verify();
  if (arguments.has("diff")) return show_distance(arguments, checkpoint, sink);
  json::Value record = convert::describe(checkpoint, arguments.flag("statistics"), sink);
  if (arguments.flag("verify")) record.as_object().set("verified", true);
  progress.done();
  cli::Output out;
  if (arguments.flag("json")) {
    out.json(record);
  } else {
    out.text(info::checkpoint_text(record));
  }
  return static_cast<int>(Exit::done);
}

}  // namespace

int main(int argc, char** argv) { return cli::run(argc, argv, command(), inform, {h5::library_version()}); }
