// What ranks send to each other, as the records of steps count it, is what the formulas of fp8-parallel(7) say: equal
// to the byte, for each dimension of the mesh and type of element, on each number of ranks.
#include <array>
#include <map>
#include <sstream>

#include "fp8/model/presets.h"
#include "fp8_files.h"
#include "run_files.h"

namespace fp8::train {
namespace {

constexpr std::int64_t kLength = 8, kGlobalBatch = 24;

using Sent = std::map<std::string, std::int64_t>;

// The presets with four layers, so that not every layer stays in a buffer of weights, and, for experts, with all
// experts for each token, so that it is known which rows travel.
hf::ModelConfig model_of(bool experts) {
  hf::ModelConfig c = hf::parse_config(model::read_model_config(experts ? "qwen3-moe-tiny" : "tiny"), "preset");
  c.num_hidden_layers = 4;
  if (experts) c.experts->per_token = c.experts->count;
  return c;
}

// A way to divide a step; ranks that are left are shards.
struct Way {
  int ranks;
  bool experts;
  int tp, replicas, ep, zero, accumulation;
  DType reduce;
  const char* precision;  // bf16, fp32, or a recipe
  int stages = 1;         // with zero 1
};

// The formulas of fp8-parallel(7), for the bytes that all ranks send in a step.
class Formulas {
 public:
  Formulas(const Way& way, const hf::ModelConfig& model)
      : way_(way),
        c_(model),
        t_(way.tp),
        r_(way.replicas),
        shards_(way.ranks / (t_ * r_ * way.stages)),
        experts_(shards_ * t_ / way.ep) {}

  Sent all() {
    const std::int64_t a = accumulation(), reduce = way_.reduce == DType::f32 ? 4 : 2;
    const std::string of_gradients = way_.reduce == DType::f32 ? "_f32" : "_bf16";
    const std::int64_t reduced = over_shards(whole()) * r_;
    add("dp_shard" + of_gradients, (way_.zero == 1 ? 1 : a) * reduce * reduced);
    add_weights();
    add("dp_replicate" + of_gradients, 2 * (r_ - 1) * reduce * (whole().dense + whole().experts));
    add_tensor_parallel();
    add_experts();
    const std::int64_t copy = shards_ * t_;
    add("several_other", r_ * 2 * (copy * way_.stages - 1) * 8 * std::ssize(model::parameter_table(c_)));
    add("pp" + type(), (way_.stages - 1) * 2 * kGlobalBatch * kLength * c_.hidden_size * bytes());
    if (rows())
      add("several_f32", r_ * 2 * 4 * over_shards(columns_of_linears()));
    else if (fp8())
      add("several_f32", r_ * 2 * (copy - 1) * 4 * 7 * c_.num_hidden_layers);
    std::int64_t total = 0;
    for (const auto& [name, bytes] : sent_) total += bytes;
    if (total > 0) sent_["sent_bytes"] = total;
    return sent_;
  }

 private:
  // Numbers of parameters; `linears` are those of dense linears.
  struct Elements {
    std::int64_t dense = 0, experts = 0, linears = 0;
    void operator+=(const Elements& o) { dense += o.dense, experts += o.experts, linears += o.linears; }
  };
  bool fp8() const { return way_.precision != std::string("bf16") && way_.precision != std::string("fp32"); }
  bool rows() const { return way_.precision == std::string("rowwise"); }
  std::int64_t bytes() const { return way_.precision == std::string("fp32") ? 4 : 2; }
  std::string type() const { return way_.precision == std::string("fp32") ? "_f32" : "_bf16"; }
  std::int64_t accumulation() const { return way_.accumulation; }
  std::int64_t heads() const { return c_.num_attention_heads * c_.head_dim; }
  std::int64_t key_values() const { return 2 * c_.num_key_value_heads * c_.head_dim; }
  std::int64_t copies() const { return std::max<std::int64_t>(1, t_ / c_.num_key_value_heads); }

  void add(const std::string& name, std::int64_t bytes) {
    if (bytes > 0) sent_["sent_bytes_" + name] += bytes;
  }

  // What all ranks of tp have whole: norms and the router.
  std::int64_t undivided(int layer) const {
    const std::int64_t norms = 2 * c_.hidden_size + (c_.qk_norm ? 2 * c_.head_dim : 0);
    return norms + (c_.is_sparse(layer) ? c_.experts->count * c_.hidden_size : 0);
  }
  // The parameters of a layer on all ranks of tp together.
  Elements layer(int number) const {
    const std::int64_t c = c_.hidden_size;
    Elements e;
    e.linears = c * (2 * heads() + copies() * key_values());
    if (c_.is_sparse(number))
      e.experts = c_.experts->count * 3 * c * c_.experts->intermediate_size;
    else
      e.linears += 3 * c * c_.intermediate_size;
    e.dense = e.linears + t_ * undivided(number);
    return e;
  }
  Elements layers(int first, int last) const {
    Elements e;
    for (int l = first; l < last; ++l) e += layer(l);
    return e;
  }
  Elements whole() const {
    Elements e = layers(0, static_cast<int>(c_.num_hidden_layers));
    e.dense += 2 * c_.vocab_size * c_.hidden_size + t_ * c_.hidden_size;
    return e;
  }
  // Sums over the linears of all layers.
  Elements lines(std::int64_t of_attention, std::int64_t of_mlp, std::int64_t of_expert) const {
    Elements e;
    for (int l = 0; l < c_.num_hidden_layers; ++l) {
      e.dense += of_attention + (c_.is_sparse(l) ? 0 : of_mlp);
      if (c_.is_sparse(l)) e.experts += c_.experts->count * of_expert;
    }
    return e;
  }
  // Their rows, which have a scale each of forward, and columns, with those of dgrad.
  Elements rows_of_linears() const {
    const std::int64_t c = c_.hidden_size, of_expert = c_.experts ? c + 2 * c_.experts->intermediate_size : 0;
    return lines(heads() + key_values() + c, c + 2 * c_.intermediate_size, of_expert);
  }
  Elements columns_of_linears() const {
    const std::int64_t c = c_.hidden_size, of_expert = c_.experts ? 2 * c + c_.experts->intermediate_size : 0;
    return lines(3 * c + heads(), 2 * c + c_.intermediate_size, of_expert);
  }
  // What is sent if each rank's rows go to the others of its group.
  std::int64_t over_shards(const Elements& e) const { return (shards_ - 1) * e.dense + (experts_ - 1) * e.experts; }

  // With zero 3 each pass but the first gathers all layers again but the two that the pass before ended with. Under
  // rowwise each pass gathers its codes of all layers, and forward the scales of rows.
  void add_weights() {
    Elements gathered = whole();
    const int l = static_cast<int>(c_.num_hidden_layers);
    for (int pass = 1; way_.zero == 3 && pass < 2 * way_.accumulation; ++pass)
      gathered += pass % 2 == 1 ? layers(0, l - 2) : layers(2, l);
    const auto linears = [this](const Elements& e) { return over_shards({e.linears, e.experts}); };
    const std::int64_t codes = fp8() ? linears(gathered) : 0;
    add("dp_shard" + type(), r_ * bytes() * (over_shards(gathered) - codes));
    if (!rows()) return add("dp_shard_fp8", r_ * codes);
    const std::int64_t gathers = way_.zero == 3 ? way_.accumulation : 1;
    add("dp_shard_fp8", r_ * 2 * gathers * linears(whole()));
    add("dp_shard_f32", r_ * gathers * over_shards(rows_of_linears()) * 4);
  }

  void add_tensor_parallel() {
    const std::int64_t passes = r_ * shards_ * accumulation(), m = kGlobalBatch * kLength / passes;
    std::int64_t exchanges = 4, codes = 0, amaxes = fp8() ? 11 * c_.num_hidden_layers - 1 : 0, shared = c_.hidden_size;
    for (int l = 0; l < c_.num_hidden_layers; ++l) {
      if (fp8()) codes += c_.is_sparse(l) ? 2 : 4;
      exchanges += c_.is_sparse(l) ? 5 : 10;
      shared += undivided(l);
    }
    const std::int64_t n = copies();
    add("tp" + type(), passes * (t_ - 1) * (exchanges - codes) * m * c_.hidden_size * bytes());
    add("tp_fp8", passes * (t_ - 1) * codes * m * c_.hidden_size);
    if (n > 1) add("tp" + type(), passes * c_.num_hidden_layers * (n - 1) * m * key_values() * bytes());
    add("tp_f32", passes * 2 * (t_ - 1) * (3 * m + amaxes) * 4);
    add("tp_f32", r_ * t_ * (t_ - 1) * shared * 4);
    add("tp_f32", r_ * n * (n - 1) * key_values() * c_.hidden_size * c_.num_hidden_layers * 4);
  }

  void add_experts() {
    if (way_.ep == 1) return;
    const std::int64_t tokens = kGlobalBatch * kLength, e = c_.experts->count, c = c_.hidden_size;
    for (int l = 0; l < c_.num_hidden_layers; ++l) {
      if (!c_.is_sparse(l)) continue;
      add("ep" + type(), 4 * tokens * e * (way_.ep - 1) / way_.ep * c * bytes());
      add("ep_other", accumulation() * way_.ranks * (way_.ep - 1) * e * 4);
    }
  }

  const Way& way_;
  const hf::ModelConfig& c_;
  std::int64_t t_, r_, shards_, experts_;
  Sent sent_;
};

// What the record of a step says.
Sent sent_of(const json::Object& step) {
  Sent sent;
  for (const auto& [name, value] : step)
    if (name.starts_with("sent_bytes")) sent[name] = value.as_int();
  return sent;
}

constexpr std::array<Way, 26> kWays{{
    {1, false, 1, 1, 1, 3, 2, DType::f32, "bf16"},       {2, false, 2, 1, 1, 3, 2, DType::f32, "bf16"},
    {2, false, 1, 1, 1, 1, 2, DType::f32, "bf16"},       {2, false, 1, 1, 1, 2, 2, DType::bf16, "bf16"},
    {2, false, 1, 1, 1, 3, 2, DType::f32, "fp32"},       {2, false, 1, 2, 1, 3, 2, DType::bf16, "bf16"},
    {2, false, 1, 1, 1, 3, 1, DType::f32, "tensorwise"}, {2, false, 2, 1, 1, 3, 1, DType::f32, "tensorwise"},
    {2, true, 2, 1, 1, 3, 1, DType::f32, "bf16"},        {2, true, 1, 1, 2, 3, 2, DType::f32, "bf16"},
    {2, true, 2, 1, 2, 1, 2, DType::f32, "fp32"},        {4, false, 4, 1, 1, 3, 1, DType::f32, "bf16"},
    {4, false, 2, 1, 1, 3, 2, DType::bf16, "bf16"},      {4, false, 2, 2, 1, 1, 2, DType::f32, "fp32"},
    {4, false, 1, 2, 1, 3, 3, DType::f32, "bf16"},       {4, false, 2, 1, 1, 3, 1, DType::f32, "tensorwise"},
    {4, true, 1, 1, 2, 3, 2, DType::f32, "bf16"},        {4, true, 2, 1, 4, 2, 1, DType::f32, "bf16"},
    {4, true, 1, 2, 2, 3, 1, DType::bf16, "bf16"},       {4, true, 4, 1, 2, 3, 1, DType::f32, "fp32"},
    {2, false, 1, 1, 1, 3, 2, DType::f32, "rowwise"},    {4, false, 1, 2, 1, 1, 2, DType::f32, "rowwise"},
    {2, false, 1, 1, 1, 1, 2, DType::f32, "bf16", 2},    {4, false, 1, 1, 1, 1, 2, DType::f32, "fp32", 2},
    {4, false, 2, 1, 1, 1, 2, DType::f32, "bf16", 2},    {4, true, 1, 1, 2, 3, 1, DType::f32, "rowwise"},
}};

TEST(Traffic, IsThatOfTheFormulas) {
  const std::array<hf::ModelConfig, 2> models{model_of(false), model_of(true)};
  const std::array<RunFiles, 2> files{RunFiles(models[0]), RunFiles(models[1])};
  for (std::size_t i = 0; i < kWays.size(); ++i) {
    const Way& way = kWays.at(i);
    if (way.ranks != world().size()) continue;
    settings::RunConfig c = files.at(way.experts ? 1 : 0).config(std::to_string(i));
    c.seq_length = kLength, c.steps = 2, c.save_every = 2;
    c.tp = way.tp, c.pp = way.stages, c.dp_replicate = way.replicas, c.ep = way.ep, c.zero = way.zero,
    c.reduce = way.reduce;
    c.grad_accumulation = way.accumulation;
    c.batch_size = kGlobalBatch / (way.ranks / way.tp / way.stages) / way.accumulation;
    const std::string precision = way.precision;
    c.precision.execution.activation = precision == "fp32" ? DType::f32 : DType::bf16;
    c.precision.precision = precision == "fp32"   ? settings::Precision::fp32
                            : precision == "bf16" ? settings::Precision::bf16
                                                  : settings::Precision::fp8;
    if (c.precision.precision == settings::Precision::fp8) c.precision.recipe = precision;
    ASSERT_EQ(run(c, world(), {}), Exit::done);
    if (world().rank() != 0) continue;
    SCOPED_TRACE("way " + std::to_string(i));
    const Sent expected = Formulas(way, models.at(way.experts ? 1 : 0)).all();
    int steps = 0;
    std::istringstream log(read_file(c.out + "/log.jsonl"));
    for (std::string line; std::getline(log, line);) {
      const json::Value record = json::parse(line, "log");
      if (record.as_object().at("type").as_string() != "step") continue;
      EXPECT_EQ(sent_of(record.as_object()), expected);
      ++steps;
    }
    EXPECT_EQ(steps, 2);
  }
}

}  // namespace
}  // namespace fp8::train
