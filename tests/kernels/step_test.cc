// The launches, bytes and FLOPs of a step, kernel by kernel, against the numbers in tests/kernels/step.tsv: a change
// that adds a launch or a pass over memory fails. The kernels run on the host, and every access of a thread to global
// memory counts. FP8_WRITE_STEP=1 in the environment writes the file instead, which a change of the kernels needs.
#include "cuda_shim.h"
//
#include <fstream>
#include <set>
#include <sstream>

#include "../golden/golden.h"
#include "fp8/json/json.h"
#include "fp8/optim/adamw.h"
#include "gemms.h"
#include "long.h"

namespace fp8::kernels {
namespace {

using dtype::DType;

constexpr const char* kFile = "tests/kernels/step.tsv";
constexpr std::int64_t kLength = 64;  // tokens of a sequence
constexpr int kExperts = 4;           // of the model that has experts

// A 32nd of Llama-3 8B in every width but the vocabulary, or with `experts` a mixture of so many smaller experts. Each
// token is in all of them, so that bytes do not depend on its route.
hf::ModelConfig config_of(int layers, int experts) {
  const std::string number = std::to_string(experts);
  if (experts > 0)
    return hf::parse_config(
        json::parse(R"({"model_type": "mixtral", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 64,
      "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "num_local_experts": )" +
                        number + R"(, "num_experts_per_tok": )" + number + R"(, "num_hidden_layers": )" +
                        std::to_string(layers) + "}",
                    "small"),
        "small");
  const std::string text = R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 448,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "num_hidden_layers": )" +
                           std::to_string(layers) + "}";
  return hf::parse_config(json::parse(text, "small"), "small");
}

// The cost of a kernel, or of the GEMMs of a kind.
struct Cost {
  double launches = 0, read = 0, written = 0, accessed = 0, flops = 0;
  Cost operator-(const Cost& b) const {
    return {launches - b.launches, read - b.read, written - b.written, accessed - b.accessed, flops - b.flops};
  }
  Cost operator*(double f) const { return {launches * f, read * f, written * f, accessed * f, flops * f}; }
};
using Costs = std::map<std::string, Cost>;

Costs operator-(Costs a, const Costs& b) {
  for (const auto& [name, cost] : b) a[name] = a[name] - cost;
  return a;
}

Costs costs_so_far() {
  Costs all;
  for (const auto& [name, w] : shim::work())
    all[name] = {static_cast<double>(w.launches), static_cast<double>(w.read), static_cast<double>(w.written),
                 static_cast<double>(w.accessed), 0};
  for (const auto& [name, g] : gemms())
    all["GEMM " + name] = {static_cast<double>(g.calls), g.read, g.written, 0, g.flops};
  return all;
}

// The costs of one micro-batch ("compute") and of the norm and the update after it ("update"), which do not depend on
// the number of sequences and are counted for one.
struct StepCosts {
  Costs compute, update;
};

StepCosts run_step(const quant::Recipe* recipe, int layers, int experts, bool head, std::int64_t sequences) {
  const device::Device gpu(device::DeviceType::cuda);
  const auto comm = comm::solo();
  const hf::ModelConfig config = config_of(layers, experts);
  shard::ModelSpec spec{config, model::parameter_table(config), {}};
  if (head) model::assign_precisions(spec.table, {.lm_head = true});
  for (model::Parameter& p : spec.table) p.fp8 = p.fp8 && recipe != nullptr;
  spec.store.fp8 = {recipe, {recipe != nullptr && recipe->power_of_2}};
  shard::ShardedModel model(gpu.context(), comm::Mesh(*comm), spec,
                            device::Arena(std::size_t{128} << 20, device::DeviceType::cuda));
  test::fill_masters(model, [&](int number, std::int64_t begin, std::int64_t end) {
    const std::int64_t cols = model.store.table()[static_cast<std::size_t>(number)].cols();
    std::vector<float> values;
    for (std::int64_t i = begin * cols; i < end * cols; ++i)
      values.push_back(static_cast<float>((i * 5 + number * 3) % 7 - 3) / 16);
    return values;
  });
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequences * kLength)), targets(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * 31 % 512);
    targets[i] = static_cast<std::int32_t>(i * 17 % 512);
  }
  const device::Buffer scalars(256, device::DeviceType::cuda, "scalars");
  auto* const sums = reinterpret_cast<double*>(scalars.data());
  auto* const gate = reinterpret_cast<optim::Gate*>(scalars.data() + 128);
  const device::Scope scope(model.arena);
  const auto micro_batch = [&] {
    shard::run_passes(model, {.gradient_scale = 1.0f / static_cast<float>(tokens.size()),
                              .batch =
                                  [&](const device::Context& ctx, device::PooledMemory& memory, int) {
                                    return shard::on_device(ctx, golden::batch_of(tokens, targets, sequences, kLength),
                                                            memory);
                                  },
                              .losses = [&](const tensor::View& losses) { optim::add_sum(model.ctx, losses, sums); }});
    model.store.gradients().finish(model.ctx);
  };
  if (model.store.scales().needs_calibration()) {  // once in a run
    model.store.scales().begin_calibration();
    micro_batch();
    model.store.end_calibration(model.ctx);
  }
  StepCosts costs;
  Costs before = costs_so_far();
  micro_batch();
  costs.compute = costs_so_far() - before;
  if (sequences > 1) return costs;
  before = costs_so_far();
  model.store.gradients().add_squares(model.ctx, sums + 1);
  optim::set_gate(model.ctx, sums, sums + 1, 1.0, gate);
  const optim::Settings settings;
  model.store.update(model.ctx, model.engine, settings, optim::scalars_of(settings, 1, 1e-3, 1, gate));
  costs.update = costs_so_far() - before;
  return costs;
}

// Lines "recipe part kernel launches read_fixed read_token written_fixed written_token accessed_fixed accessed_token
// flops_token" for the costs of
// `few` and `many` sequences: bytes that do not depend on the number of tokens, and bytes and FLOPs of a token more.
void add_lines(const std::string& recipe, const std::string& part, const Costs& few, const Costs& many,
               std::int64_t tokens, std::ostream& out) {
  for (const auto& [name, cost] : few) {
    const auto found = many.find(name);
    const Cost token = (found->second - cost) * (1.0 / static_cast<double>(tokens));
    const Cost fixed = cost - token * static_cast<double>(tokens);
    if (cost.launches == 0) continue;
    const auto whole = [](double v) { return std::llround(v); };
    out << recipe << '\t' << part << '\t' << name << '\t' << whole(cost.launches) << '\t' << whole(fixed.read) << '\t'
        << whole(token.read) << '\t' << whole(fixed.written) << '\t' << whole(token.written) << '\t'
        << whole(fixed.accessed) << '\t' << whole(token.accessed) << '\t' << whole(token.flops) << '\n';
  }
}

// The lines of a recipe; with `head` also those of the rest that are others if the LM head is in FP8.
void add_recipe(const std::string& name, const quant::Recipe* recipe, int experts, bool head, std::ostream& out) {
  constexpr std::int64_t kSequences = 1;
  const auto run = [&](int layers, std::int64_t sequences, bool of_head = false) {
    return run_step(recipe, layers, experts, of_head, sequences);
  };
  const StepCosts few = run(1, kSequences), many = run(1, 2 * kSequences), few_2 = run(2, kSequences),
                  many_2 = run(2, 2 * kSequences);
  const auto add = [&](const std::string& of, const std::string& part, const Costs& one, const Costs& one_many) {
    std::ostringstream lines;
    add_lines(of, part, one, one_many, kSequences * kLength, lines);
    return lines.str();
  };
  const Costs layer = few_2.compute - few.compute, layer_many = many_2.compute - many.compute;
  out << add(name, "compute of a layer", layer, layer_many);
  if (experts > 0) return;  // the rest, and the update, are those of the other model
  const std::string rest = add(name, "compute of the rest", few.compute - layer, many.compute - layer_many);
  const Costs update = few_2.update - few.update;
  out << rest << add(name, "update of a layer", update, update)
      << add(name, "update of the rest", few.update - update, few.update - update);
  if (!head) return;
  std::istringstream lines(add(name, "compute of the rest", run(1, kSequences, true).compute - layer,
                               run(1, 2 * kSequences, true).compute - layer_many));
  for (std::string line; std::getline(lines, line);)
    if (rest.find(line + '\n') == std::string::npos) out << "head " << line << '\n';
}

TEST(Step, HasTheStatedLaunchesBytesAndFlops) {
  if (!counts_bytes()) GTEST_SKIP() << "a build with a sanitizer counts no bytes";
  std::ostringstream out;
  out << "# Written by tests/kernels/step_test.cc. Bytes and FLOPs of a layer, and of the rest of a step, of a model\n"
         "# with hidden size 128, intermediate size 448, 4 heads of 32 elements, 1 key/value head, vocabulary 512, "
         "in\n"
         "# sequences of 64 tokens. A byte that a launch reads or writes several times counts once, but each time in\n"
         "# 'accessed'. GEMMs read A and B and write C once. With 'experts' the layer has 4 of intermediate size 64, "
         "and "
         "each token\n"
         "# is in all of them. With 'head' the LM head is in FP8, and lines that are the same without are left out.\n"
         "# recipe\tpart\tkernel\tlaunches\tread\teach token\twritten\teach token\taccessed\teach token\tFLOPs of "
         "each token\n";
  const bool write = std::getenv("FP8_WRITE_STEP") != nullptr;
  // Delayed and blockwise have the kernels of the others.
  const std::set<std::string> slow{
      "bf16", "tensorwise", "rowwise", "current", "experts tensorwise", "experts blockwise", "head tensorwise"};
  const bool all = write || test::long_run(static_cast<int>(slow.size()));
  if (all) add_recipe("bf16", nullptr, 0, false, out);
  for (const std::string recipe : {"tensorwise", "rowwise", "current", "delayed", "blockwise"})
    if (all || !slow.contains(recipe))
      add_recipe(recipe, &quant::find_recipe(recipe), 0, recipe != "rowwise" && recipe != "current", out);
  for (const std::string recipe : {"tensorwise", "rowwise", "delayed", "blockwise"})
    if (const std::string name = "experts " + recipe; all || !slow.contains(name))
      add_recipe(name, &quant::find_recipe(recipe), kExperts, false, out);
  if (write) {
    std::ofstream(kFile) << out.str();
    GTEST_SKIP() << kFile << " was written";
  }
  std::istringstream wanted(test::read_file(kFile)), got(out.str());
  const auto next_wanted = [&](std::string& line) {
    while (std::getline(wanted, line))
      if (all || !slow.contains(line.substr(0, line.find('\t')))) return true;
    return false;
  };
  std::string a, b;
  int different = 0;
  while (next_wanted(a) + static_cast<bool>(std::getline(got, b)) > 0) {
    if (a != b) ADD_FAILURE() << kFile << "\n stated: " << a << "\ncounted: " << b;
    if (a != b && ++different == 10) break;
    a.clear();
    b.clear();
  }
  if (different > 0) ADD_FAILURE() << "FP8_WRITE_STEP=1 build/test/kernels_test writes the new numbers";
}

}  // namespace
}  // namespace fp8::kernels
