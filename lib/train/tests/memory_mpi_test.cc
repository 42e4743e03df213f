// The memory that a dry run plans is the memory that the run uses, whatever options are combined. Every pair of values
// of two options is in one of the runs.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <random>

#include "../../comm/tests/mpi_main.h"
#include "fp8/convert/quantize.h"
#include "fp8/model/initialize.h"
#include "fp8/train/run.h"
#include "small_model.h"

namespace fp8::train {
namespace {

using namespace test;
using dtype::DType;
using settings::Precision;
using settings::RunConfig;

comm::Communicator& world() { return *comm::world(); }

// A value of an option.
struct Value {
  std::string name;
  std::function<void(RunConfig&)> apply;
};
using Option = std::vector<Value>;

// `member`: a member of RunConfig, or a function that returns a reference to it.
template <class Member, class T>
Option option(const std::string& name, Member member, std::initializer_list<T> values) {
  Option all;
  for (const T& value : values)
    all.push_back({name + " " + std::to_string(static_cast<std::int64_t>(value)),
                   [=](RunConfig& c) { std::invoke(member, c) = value; }});
  return all;
}

// A path of RunConfig with a suffix.
std::function<void(RunConfig&)> ending(std::string RunConfig::*member, const std::string& suffix) {
  return [=](RunConfig& c) { (c.*member) += suffix; };
}

Option precisions() {
  Option all;
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    all.push_back({std::string(name_of(precision)), [=](RunConfig& c) {
                     c.precision.precision = precision;
                     if (precision == Precision::fp32) c.precision.execution.activation = DType::f32;
                   }});
  for (const quant::Recipe& recipe : quant::recipes())
    all.push_back({std::string(recipe.name), [&recipe](RunConfig& c) {
                     c.precision.precision = Precision::fp8;
                     c.precision.recipe = recipe.name;
                     c.precision.delayed.history = 2;
                   }});
  return all;
}

// The forms of FP8 that some precisions exclude.
Option forms() {
  return {{"plain form", [](RunConfig&) {}},
          {"f32 activations", [](RunConfig& c) { c.precision.execution.activation = DType::f32; }},
          {"e4m3 gradients", [](RunConfig& c) { c.precision.e4m3_gradients = true; }},
          {"no FP8 all-gather", [](RunConfig& c) { c.precision.fp8_all_gather = false; }},
          {"single copy", [](RunConfig& c) { c.precision.rowwise_single_copy = true; }},
          {"fused", [](RunConfig& c) { c.precision.fuse_projections = true; }},
          {"hopper", [](RunConfig& c) { c.precision.accumulation = gemm::Accumulation::hopper; }},
          {"LM head", [](RunConfig& c) { c.precision.selection.lm_head = true; }},
          {"forward in FP8", [](RunConfig& c) {
             c.precision.selection.gemms = {{"", quant::GemmSet{true, false, false}}};
           }}};
}

// The options of runs that train adapters, or all weights.
std::vector<Option> options(bool adapters) {
  const Option models{{"untied", ending(&RunConfig::model, "untied.h5")},
                      {"tied", ending(&RunConfig::model, "tied.h5")},
                      {"tensor codes", ending(&RunConfig::model, "tensor.h5")},
                      {"row codes", ending(&RunConfig::model, "row.h5")},
                      {"block codes", ending(&RunConfig::model, "block.h5")}};
  const Option trained{{"all linears", [](RunConfig& c) { c.lora.rank = 4; }},
                       {"dropout", [](RunConfig& c) {
                          c.lora.rank = 4, c.lora.targets = {"q_proj", "down_proj"}, c.lora.dropout = 0.5;
                        }}};
  return {
      adapters ? models : Option(models.begin(), models.begin() + 2),
      adapters ? trained : Option{{"all weights", [](RunConfig&) {}}},
      precisions(),
      forms(),
      option("documents", &RunConfig::documents, {data::DocumentMode::joined, data::DocumentMode::separate}),
      option("accumulation", &RunConfig::grad_accumulation, {1, 2}),
      option("recompute", [](RunConfig & c) -> auto& { return c.precision.execution.recompute; },
             {model::Recompute::none, model::Recompute::selective, model::Recompute::full}),
      option("zero", &RunConfig::zero, {3, 2, 1}),
      option("reshard", &RunConfig::reshard_after_forward, {true, false}),
      option("statistics", &RunConfig::stats_every, {0, 2}),
      option("paranoid", &RunConfig::paranoid, {0, 2}),
      {{"no gradients", [](RunConfig&) {}}, {"gradients", [](RunConfig& c) { c.gradients = c.out + ".safetensors"; }}},
      option("evaluation", &RunConfig::eval_every, {0, 2}),
      option("sample", &RunConfig::sample_every, {0, 2}),
      option("profile", &RunConfig::profile_last, {0, 3}),
      option("background", &RunConfig::async_save, {false, true}),
      {{"f32 master", [](RunConfig&) {}},
       {"bf16 master", [](RunConfig& c) { c.master = DType::bf16; }},
       {"bf16 moments", [](RunConfig& c) { c.moments = DType::bf16; }}}};
}

// Whether fp8-step refuses two values together.
bool refused(const std::string& a, const std::string& b) {
  const auto is = [&](std::string_view one, const std::vector<std::string_view>& others) {
    const auto among = [&](const std::string& x) { return std::ranges::find(others, x) != others.end(); };
    return (a == one && among(b)) || (b == one && among(a));
  };
  const auto is_not = [&](std::string_view one, const Option& all, const std::vector<std::string_view>& allowed) {
    std::vector<std::string_view> others;
    for (const Value& v : all)
      if (std::ranges::find(allowed, v.name) == allowed.end()) others.push_back(v.name);
    return is(one, others);
  };
  static const Option every = precisions(), each = forms();
  for (const char* codes : {"tensor codes", "row codes", "block codes"})
    if (is(codes, {"bf16 master", "fused"})) return true;
  return is_not("fp32", each, {"plain form", "f32 activations"}) || is_not("bf16", each, {"plain form"}) ||
         is_not("tensor codes", every, {"tensorwise"}) || is_not("row codes", every, {"rowwise"}) ||
         is_not("block codes", every, {"blockwise"}) || is_not("row codes", each, {"single copy"}) ||
         is("tensor codes", {"e4m3 gradients", "LM head", "forward in FP8", "single copy"}) ||
         is_not("block codes", each, {"plain form", "f32 activations", "no FP8 all-gather"}) ||
         is_not("single copy", every, {"rowwise"}) || is_not("fused", every, {"tensorwise", "current"}) ||
         is("fused", {"statistics 2", "all linears", "dropout"}) || is("hopper", {"mxfp8"}) ||
         is("nvfp4", {"hopper", "e4m3 gradients"}) || is("bf16 master", {"all linears", "dropout"});
}

// Rows of values, one of each option, such that every pair that is not refused is in a row. Greedy: a row begins with a
// pair that no row has, each further value is one that adds the most such pairs, and the best of several rows is taken.
// Every run has the same rows. Values are numbered over all options.
class Covering {
 public:
  explicit Covering(const std::vector<Option>& options) {
    for (const Option& option : options) {
      first_.push_back(names_.size());
      for (const Value& value : option) names_.push_back(value.name), option_.push_back(first_.size() - 1);
    }
    first_.push_back(names_.size());
    fits_.resize(names_.size(), std::vector<char>(names_.size()));
    for (std::size_t i = 0; i < names_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        fits_[i][j] = fits_[j][i] = option_[i] != option_[j] && !refused(names_[i], names_[j]);
    while (exclude_pairs()) continue;
    left_ = fits_;
  }
  // For each option the index of its value; nothing if every pair is in a row.
  std::optional<std::vector<std::size_t>> next() {
    constexpr int kTries = 30;
    std::vector<std::size_t> best;
    std::size_t most = 0;
    const auto pairs = pairs_left();
    if (pairs.empty()) return std::nullopt;
    for (int i = 0; i < kTries; ++i) {
      const std::vector<std::size_t> row = attempt(pairs[random_() % pairs.size()]);
      std::size_t added = 0;
      for (const std::size_t value : row) added += gain(row, value);
      if (added > most) best = row, most = added;
    }
    if (best.empty()) throw Error(names_[pairs[0].first] + ", " + names_[pairs[0].second] + ": no row can have both");
    std::vector<std::size_t> values(first_.size() - 1);
    for (const std::size_t one : best) {
      values[option_[one]] = one - first_[option_[one]];
      for (const std::size_t other : best) left_[one][other] = 0;
    }
    return values;
  }

 private:
  using Pair = std::pair<std::size_t, std::size_t>;

  // Excludes pairs with which no value of another option fits. Returns whether there were any.
  bool exclude_pairs() {
    bool any = false;
    for (std::size_t i = 0; i < names_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        if (fits_[i][j] == 0 || all_options_fit(i, j)) continue;
        fits_[i][j] = fits_[j][i] = 0;
        any = true;
      }
    return any;
  }
  bool all_options_fit(std::size_t i, std::size_t j) const {
    for (std::size_t option = 0; option + 1 < first_.size(); ++option) {
      if (option == option_[i] || option == option_[j]) continue;
      bool any = false;
      for (std::size_t k = first_[option]; k < first_[option + 1]; ++k)
        any = any || (fits_[i][k] != 0 && fits_[j][k] != 0);
      if (!any) return false;
    }
    return true;
  }

  std::vector<Pair> pairs_left() const {
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i < names_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (left_[i][j] != 0) pairs.emplace_back(i, j);
    return pairs;
  }
  std::size_t gain(const std::vector<std::size_t>& row, std::size_t value) const {
    std::size_t n = 0;
    for (const std::size_t other : row) n += left_[other][value] != 0 ? 1 : 0;
    return n;
  }
  bool fits(const std::vector<std::size_t>& row, std::size_t value) const {
    return std::ranges::all_of(row, [&](std::size_t other) { return fits_[other][value] != 0; });
  }
  // Empty if values that were chosen exclude all values of an option.
  std::vector<std::size_t> attempt(const Pair& pair) {
    std::vector<std::size_t> row{pair.first, pair.second}, order(first_.size() - 1);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::size_t i : order) {
      if (i == option_[pair.first] || i == option_[pair.second]) continue;
      std::optional<std::size_t> best;
      for (std::size_t value = first_[i]; value < first_[i + 1]; ++value)
        if (fits(row, value) && (!best || gain(row, value) > gain(row, *best))) best = value;
      if (!best) return {};
      row.push_back(*best);
    }
    return row;
  }

  std::vector<std::string> names_;              // names of all values
  std::vector<std::size_t> option_;             // option of each value
  std::vector<std::size_t> first_;              // value of each option, and the number of values
  std::vector<std::vector<char>> fits_, left_;  // whether two values may be in a row; whether no row has them yet
  std::mt19937_64 random_{1};
};

// A model whose weights take more memory than the fixed scratch of operations, such as that of attention, which would
// hide differences in the peak.
hf::ModelConfig wide_model(bool tied) {
  const std::string text = R"({"model_type": "qwen3", "vocab_size": 64, "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 64, "tie_word_embeddings": )";
  return hf::parse_config(json::parse(text + (tied ? "true}" : "false}"), "wide"), "wide");
}

// Models and token files for runs of all ranks.
class MemoryFiles {
 public:
  MemoryFiles() {
    comm::agree(world(), [&] {
      if (world().rank() == 0) write();
    });
    folder_ = world().all_gather(own_ ? own_->path() : "")[0] + "/";
  }
  ~MemoryFiles() { world().barrier(); }
  MemoryFiles(const MemoryFiles&) = delete;
  MemoryFiles& operator=(const MemoryFiles&) = delete;

  RunConfig config() const {
    RunConfig c;
    c.model = folder_, c.data = c.eval_data = folder_ + "data.h5";
    c.out = folder_ + "run" + std::to_string(runs_);
    c.batch_size = 1, c.seq_length = 16, c.schedule.lr = 1e-3;
    c.steps = 3,
    c.until_step = 2;  // a profile of step 3 is not complete, so that no limits of the machine are measured
    c.profile_first = 1, c.sample_prompt = "12 3", c.sample_tokens = 9;
    c.flags = json::object({});
    return c;
  }
  // The records of a run of all ranks, on rank 0.
  std::vector<json::Value> records_of(const RunConfig& config) {
    ++runs_;
    std::vector<json::Value> records;
    state::Hooks hooks;
    hooks.record = [&](const json::Value& r) { records.push_back(r); };
    EXPECT_EQ(run(config, world(), hooks), Exit::done);
    return records;
  }

 private:
  void write() {
    own_.emplace();
    const auto at = [this](const char* name) { return own_->path() + "/" + name; };
    for (const bool tied : {false, true})
      (void)model::initialize(wide_model(tied), at(tied ? "tied.h5" : "untied.h5"), {.tokenizer_id = "bytes"});
    using quant::Granularity;
    for (const auto& [name, scaling] : {std::pair("tensor.h5", Granularity::tensor),
                                        {"row.h5", Granularity::row},
                                        {"block.h5", Granularity::block128x128}})
      (void)convert::quantize(at("untied.h5"), at(name), {.scaling = scaling});
    data::TokenWriter documents(at("data.h5"), 64, std::nullopt, false, false);
    for (std::uint32_t i = 0; i < 300; ++i) {
      documents.append(std::vector<std::uint32_t>(1 + i % 7, i % 64));
      documents.end_document();
    }
    (void)documents.finish();
  }
  std::optional<test::TemporaryFolder> own_;  // of rank 0
  std::string folder_;
  int runs_ = 0;
};

// Compares the bytes that a run planned and used, without the program: bytes of the arena and of the scratch of GEMMs.
void check_used(const std::vector<json::Value>& records) {
  const json::Object& planned = records.front().as_object().at("memory_plan").as_object();
  const json::Object& used = records.back().as_object().at("memory_used").as_object();
  const auto scratch = [](const json::Object& o) { return o.at("matmul scratch").as_int(); };
  EXPECT_EQ(used.at("total").as_int() - scratch(used),
            planned.at("total").as_int() - planned.at("program").as_int() - scratch(planned))
      << json::dump(used) << " of " << json::dump(planned);
  EXPECT_LE(scratch(used), scratch(planned));
  // Codes in blocks are multiplied as they are if bf16 represents their products with the scales, which depends on the
  // values; the plan assumes that it does not.
  const json::Value& recipe = records.front().as_object().at("recipe");
  const bool blocks = recipe == json::Value("blockwise") || recipe == json::Value("mxfp8");
  if (!blocks) {
    EXPECT_EQ(scratch(used), scratch(planned));
  }
}

// Runs one row of values, and compares.
void check_row(MemoryFiles& files, const std::vector<Option>& all, const std::vector<std::size_t>& values,
               bool long_sequences) {
  RunConfig config = files.config();
  if (long_sequences) config.batch_size = 4, config.seq_length = 64;
  std::string name = long_sequences ? "long sequences" : "short sequence";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Value& value = all[i][values[i]];
    value.apply(config);
    name += ", " + value.name;
  }
  SCOPED_TRACE(name);
  try {
    const std::vector<json::Value> records = files.records_of(config);
    if (world().rank() == 0) check_used(records);
  } catch (const Error& e) {
    ADD_FAILURE() << e.what();
  }
}

// On one rank, and on two, which shard as more ranks do. Activations hide the scratch for weights in the peak of long
// sequences, and are hidden in the peak of short ones, which are enough for what two ranks add. One rank has rows of
// either length by turns, and two ranks every third row; with FP8_LONG all rows are tested in all ways.
TEST(Memory, IsUsedAsPlannedInEveryPairOfOptions) {
  if (world().size() > 2) GTEST_SKIP() << "two ranks shard as more ranks do";
  MemoryFiles files;
  const bool one = world().size() == 1;
  for (const bool adapters : {false, true}) {
    const std::vector<Option> all = options(adapters);
    Covering covering(all);
    std::vector<std::vector<std::size_t>> rows;
    while (const auto values = covering.next()) rows.push_back(*values);
    EXPECT_GT(rows.size(), 20U);
    const std::size_t parts = one ? 2 : 3;
    const auto left = static_cast<int>(one ? rows.size() : rows.size() - (rows.size() + 2) / 3);
    const bool every = comm::long_run(left);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (const bool long_sequences : {false, true})
        if ((one || !long_sequences) && (every || i % parts == (long_sequences ? 1 : 0)))
          check_row(files, all, rows[i], long_sequences);
  }
}

}  // namespace
}  // namespace fp8::train
