// fp8-info: shows the contents of a checkpoint, verifies it, compares two. See fp8-info(1).
#include "fp8/base/error.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/convert/describe.h"
#include "fp8/h5/types.h"
#include "fp8/model/record.h"
#include "report.h"

namespace {

using namespace fp8;

cli::Command command() {
  cli::Command c;
  c.name = "fp8-info";
  c.about = "show the contents of a checkpoint, verify it, compare two";
  c.example = "fp8-info model.h5 --verify";
  c.positionals = {cli::checkpoint_argument("checkpoint", "CHECKPOINT|-", "checkpoint to show")};
  c.flags = {
      {.name = "verify", .help = "first check every byte against the stored digests"},
      {.name = "diff",
       .kind = cli::FlagKind::path,
       .metavar = "OTHER",
       .help = "compare the tensors with those of OTHER"},
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

int show_distance(const cli::Arguments& arguments, const ckpt::Checkpoint& a, const model::ProgressSink& sink) {
  const ckpt::Checkpoint b = model::open_checkpoint(arguments.text("diff"));
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

int inform(const cli::Arguments& arguments) {
  const std::string path = model::resolve_checkpoint_argument(arguments.positional("checkpoint"));
  if (model::is_token_file(path)) return show_tokens(arguments, path);
  const ckpt::Checkpoint checkpoint = model::open_checkpoint(path);
  cli::Progress progress(arguments.flag("quiet"));
  const model::ProgressSink sink = [&](const std::string& tensor, std::size_t i, std::size_t n) {
    progress.update(std::to_string(i) + "/" + std::to_string(n) + " " + tensor);
  };
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
