// The rows of the table of settings that fp8-eval, fp8-inspect and fp8-plan alone have, and what all parts of it use.
#include "fp8/base/error.h"
#include "fp8/base/share.h"
#include "fp8/base/text.h"
#include "rows.h"

namespace fp8::settings {

void add(Rows& rows, const char* group, unsigned tools, Resume resume, std::vector<Row> more) {
  for (Row& r : more) {
    if (r.flag.group.empty()) r.flag.group = group;
    if (r.tools == 0) r.tools = tools;
    r.resume = r.own_resume.value_or(resume);
    if (r.resume == Resume::named && r.change.empty()) r.change = r.flag.name;
    rows.push_back(std::move(r));
  }
}

Names<data::SamplerKind> samplers() {
  return {{"shuffle", data::SamplerKind::shuffle}, {"sequential", data::SamplerKind::sequential}};
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const quant::Recipe& r : quant::recipes()) names.emplace_back(r.name);
  return names;
}

namespace {

using N = PlanConfig;

// The precisions with which the routes of recipes are compared.
std::vector<std::string> compared_names() {
  std::vector<std::string> names = recipe_names();
  names.insert(names.begin(), {kPlainRecipe, kExactRecipe});
  return names;
}

void read_sweep(const Arguments& a, N& c) {
  for (const std::string& part : parts_of(a.list("sweep"))) {
    const std::optional<std::int64_t> ranks = parse_int64(part);
    if (!ranks || *ranks < 1)
      throw Error(cli::flag_name("sweep") + ": '" + excerpt(part) + "' is not a number of ranks");
    c.sweep.push_back(*ranks);
  }
}

// Names of the machines for completions; none if they are not installed, which only a use of one reports.
std::vector<std::string> machine_names() {
  try {
    return share_names("machines", ".json");
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

void add_evaluation(Rows& rows) {
  add(rows, kData, kEval, Resume::free,
      {toggle("per-token", "", "print a record with the loss of every token for each sequence",
              &EvalConfig::per_token)});
  add(rows, kData, kInspect, Resume::free,
      {choice("sampler", "sequential", samplers(), "order in which sequences are read", &InspectConfig::sampler),
       whole("seed", "0", 0, "seed of the sampler", &InspectConfig::seed),
       whole("step", "1", 1, "step of a run whose batch is read, from 1", &InspectConfig::step),
       text("layers", "GLOB", "report only linears whose name matches", &InspectConfig::layers).is(FlagKind::list),
       toggle("blocks", "", "add the spread of the figures over rows or blocks", &InspectConfig::blocks),
       text("routes", "NAME",
            "share of the tokens that other experts get under each recipe than in bf16, in fp32 or under a recipe",
            &InspectConfig::routes)
           .suggests(compared_names()),
       toggle("sensitivity", "", "measure what each GEMM alone does to the loss or the gradient",
              &InspectConfig::sensitivity),
       whole("batches", "1", 1, "batches of --sensitivity and --recommend, from --step on", &InspectConfig::batches),
       real("recommend", "", 0, 1e6,
            "leave in bf16 what raises the loss beyond noise, until the rest raises it by less than this; needs -o",
            &InspectConfig::recommend)
           .metavar("NATS"),
       text("recommend-recipe", "NAME", "with --recommend: recipe of these linears, instead of bf16",
            &InspectConfig::recommend_recipe)
           .suggests(recipe_names()),
       whole("top", "0", 0, "rows of each table, the worst; 0: all; with --recommend 10 unless given",
             &InspectConfig::top),
       text("bisect", "FLAGS", "compare each operation under these flags of precision, A, with those of --against"),
       text("against", "FLAGS", "with --bisect: the flags of precision of B"),
       real("bound", "", 0, 1e6,
            "with --bisect: relative difference above which an operation is named, with status 1 [0.5]"),
       row(cli::output_flag("with --recommend: file of the recommended configuration"), &InspectConfig::output),
       row(cli::force_flag(), &InspectConfig::force)});
}

void add_plan(Rows& rows) {
  add(rows, "Plan", kPlan, Resume::free,
      {text("machine", "NAME|FILE", "machine to plan for, see fp8-machine(5) [memory alone is planned]", &N::machine)
           .suggests(machine_names()),
       text("set", "KEY=VALUE", "set a key of the model's configuration, or, as machine.KEY, one of the machine",
            &N::keys)
           .is(FlagKind::list),
       whole("ranks", "", 1, "ranks of the job [the product of the sizes of the mesh]", &N::ranks),
       whole("ranks-per-node", "", 1, "ranks on each host [those of the machine]", &N::ranks_per_node),
       toggle("fit", "", "search mesh, micro-batch, recompute and sharding for these ranks: the fastest that fit",
              &N::fit),
       text("sweep", "N,...", "numbers of ranks to plan for, with the samples of each rank unchanged")
           .is(FlagKind::list)
           .reads(read_sweep),
       toggle("layers", "", "add a table of the layers: time in bf16 and under each recipe", &N::layers),
       text("as", "PROGRAM", "price the habits of another program: megatron or fsdp2 [those of fp8-step]", &N::as)
           .among({"megatron", "fsdp2"}),
       whole("vp", "1", 1, "stages of each rank of a pipeline, interleaved; fp8-step has one", &N::virtual_stages)
           .between(1, 1024),
       real("imbalance", "1", 1, 1e6, "rows of the busiest rank's experts, as a multiple of the mean", &N::imbalance),
       whole("tokens", "", 1, "tokens of the whole run, for its days", &N::tokens),
       real("require-gain", "", 0, 1e6, "speed over bf16 below which the status is 1", &N::require_gain),
       text("plot", "FILE", "draw memory by category, and tokens/s on a machine, into an image, .svg or .png", &N::plot)
           .is(FlagKind::path),
       row(cli::force_flag(), &N::force)});
}

}  // namespace fp8::settings
