// Runs of a model with experts on one rank: what records say of loads and of the losses that balance them.
#include <algorithm>
#include <numeric>

#include "../../shard/tests/expert_model.h"
#include "fp8/json/json.h"
#include "fp8/settings/lora.h"
#include "run_fixture.h"

namespace fp8::train {
namespace {

constexpr std::int64_t kPerToken = 2, kLayers = 2;  // experts of a token, layers with experts of the small mixture

class ExpertRun : public Run {
 protected:
  ExpertRun() {
    (void)model::initialize(small_mixture(), at("x.h5"), {});
    config_.model = at("x.h5");
  }
  // Starts a run in another folder.
  void go_in(const std::string& folder) {
    config_.out = at(folder);
    EXPECT_EQ(go(), Exit::done);
  }
  // A field of each step; of steps without it, none.
  std::vector<double> field(const std::string& name) const {
    std::vector<double> values;
    for (const json::Value& r : records_)
      if (r.as_object().get_string("type", "record") == "step" && r.as_object().find(name) != nullptr)
        values.push_back(r.as_object().get_double(name, "step"));
    return values;
  }
  // The records of experts in tensors.jsonl.
  std::vector<json::Value> expert_records() const {
    std::vector<json::Value> found;
    const std::string text = read_file(config_.out + "/tensors.jsonl");
    for (std::size_t from = 0, end = text.find('\n'); end != std::string::npos;
         from = end + 1, end = text.find('\n', from)) {
      json::Value record = json::parse(text.substr(from, end - from), "tensors.jsonl");
      if (record.as_object().get_string("type", "record") == "experts") found.push_back(std::move(record));
    }
    return found;
  }
  static std::int64_t rows_of(const json::Value& record) {
    const json::Array& rows = record.as_object().get_array("rows", "record");
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0},
                           [](std::int64_t sum, const json::Value& n) { return sum + n.as_int(); });
  }
  void in_fp32() {
    config_.precision.precision = settings::Precision::fp32, config_.precision.execution.activation = DType::f32;
  }
};

TEST_F(ExpertRun, RecordsHaveLoadsAndTheLossesThatAreAskedFor) {
  go_in("plain");
  EXPECT_EQ(field("expert_load_max").size(), 4U);
  EXPECT_EQ(field("expert_idle").size(), 4U);
  EXPECT_TRUE(field("aux_loss").empty() && field("z_loss").empty());
  EXPECT_EQ(records_.front().as_object().get_int("experts", "run"), kLayers * 3);
  for (const double load : field("expert_load_max")) EXPECT_TRUE(load >= 1 && load <= 3.0 / kPerToken) << load;
  const std::string plain = losses();
  config_.aux_loss = 0.01;
  go_in("aux");
  EXPECT_EQ(field("aux_loss").size(), 4U);
  EXPECT_TRUE(field("z_loss").empty());
  for (const double aux : field("aux_loss")) EXPECT_NEAR(aux, kLayers, 0.2) << "1 for each layer that is balanced";
  EXPECT_EQ(losses().substr(0, losses().find(' ')), plain.substr(0, plain.find(' '))) << "the loss is without it";
  EXPECT_NE(losses(), plain) << "but weights depend on it";
  config_.aux_loss = 0, config_.z_loss = 0.01;
  go_in("z");
  EXPECT_EQ(field("z_loss").size(), 4U);
  EXPECT_TRUE(field("aux_loss").empty());
  for (const double z : field("z_loss")) EXPECT_NEAR(z, kLayers * std::log(3.0) * std::log(3.0), 0.3);
}

TEST_F(ExpertRun, TheLossesGrowSmallerWithLargeFactors) {
  config_.steps = 30, config_.schedule.lr = 3e-2, config_.z_loss = 10;
  go_in("z");
  EXPECT_LT(field("z_loss").back(), 0.5 * field("z_loss").front());
}

// Loads and the loss of the logits do not depend on the split of a batch; the loss of shares does, since an expert's
// share is that of an accumulation step, unless all accumulation steps have the same tokens.
TEST_F(ExpertRun, AccumulationOfTheSameBatch) {
  in_fp32();
  config_.steps = 1, config_.sampler = data::SamplerKind::sequential, config_.aux_loss = config_.z_loss = 0.1;
  for (const bool repeats : {true, false}) {
    if (repeats) {
      data::TokenWriter writer(at("repeats.h5"), 64, std::nullopt, false, false);
      std::vector<std::uint32_t> ids;
      for (std::uint32_t i = 0; i < 200; ++i) ids.push_back(i % 8 * 7 % 61);
      writer.append(ids);
      (void)writer.finish();
    }
    config_.data = at(repeats ? "repeats.h5" : "data.h5");
    std::vector<std::array<double, 5>> found;
    for (const std::int64_t accumulation : {1, 2}) {
      config_.grad_accumulation = accumulation, config_.batch_size = 4 / accumulation;
      go_in((repeats ? "repeats" : "data") + std::to_string(accumulation));
      found.push_back({field("aux_loss").at(0), field("z_loss").at(0), field("expert_load_max").at(0),
                       field("expert_idle").at(0), field("grad_norm").at(0)});
    }
    EXPECT_NEAR(found[1][1], found[0][1], 1e-6 * found[0][1]);
    EXPECT_EQ(found[1][2], found[0][2]);
    EXPECT_EQ(found[1][3], found[0][3]);
    if (repeats) {
      EXPECT_NEAR(found[1][0], found[0][0], 1e-6 * found[0][0]);
      EXPECT_NEAR(found[1][4], found[0][4], 1e-5 * found[0][4]);
    } else {
      EXPECT_NE(found[1][0], found[0][0]);
      EXPECT_NEAR(found[1][0], found[0][0], 0.1 * found[0][0]);
    }
  }
}

TEST_F(ExpertRun, EvaluationsNeitherAddNorCount) {
  config_.aux_loss = config_.z_loss = 0.1, config_.stats_every = 1;
  go_in("alone");
  const auto fields = [&] {
    std::vector<std::vector<double>> all;
    for (const char* name : {"loss", "grad_norm", "aux_loss", "z_loss", "expert_load_max", "expert_idle"})
      all.push_back(field(name));
    return all;
  };
  const auto alone = fields();
  const std::string loads = read_file(at("alone/tensors.jsonl"));
  write_tokens(at("eval.h5"), 300, 64);
  config_.eval_data = at("eval.h5"), config_.eval_every = 1;
  go_in("evaluated");
  EXPECT_EQ(fields(), alone);
  EXPECT_EQ(read_file(at("evaluated/tensors.jsonl")), loads);
  // The loss of an evaluation is the cross-entropy alone.
  const auto first_evaluation = [&] {
    for (const json::Value& r : records_)
      if (r.as_object().get_string("type", "record") == "eval") return r.as_object().get_double("loss", "eval");
    return 0.0;
  };
  config_.schedule.lr = 0;
  go_in("factors");
  const double with = first_evaluation();
  config_.aux_loss = config_.z_loss = 0;
  go_in("none");
  EXPECT_EQ(first_evaluation(), with);
}

// Documents of 6, 3 and 5 tokens in sequences of 8: of each, one token fewer has a target, and all of its tokens are
// routed.
TEST_F(ExpertRun, PaddingIsNotCounted) {
  data::TokenWriter writer(at("documents.h5"), 64, std::nullopt, true, true);
  std::uint32_t next = 1;
  for (const std::size_t length : {6, 3, 5}) {
    std::vector<std::uint32_t> ids(length);
    for (std::uint32_t& id : ids) id = next = next * 37 % 61;
    writer.append(ids, std::vector<std::uint8_t>(length, 1));
    writer.end_document();
  }
  (void)writer.finish();
  config_.data = at("documents.h5"), config_.batch_size = 3, config_.steps = 1, config_.stats_every = 1;
  config_.aux_loss = config_.z_loss = 0.1;
  in_fp32();
  std::vector<std::vector<double>> found;
  for (const std::int64_t length : {8, 24}) {
    config_.seq_length = length;
    go_in("padded" + std::to_string(length));
    const auto loads = expert_records();
    ASSERT_EQ(loads.size(), 2U);
    for (const json::Value& record : loads) EXPECT_EQ(rows_of(record), kPerToken * (6 + 3 + 5));
    found.push_back({field("aux_loss").at(0), field("z_loss").at(0), field("expert_load_max").at(0)});
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[1][i], found[0][i], 1e-5 * found[0][i]) << i;
}

TEST_F(ExpertRun, TensorStatisticsHaveTheRowsOfEachExpert) {
  config_.stats_every = 2;
  for (const bool fp8 : {false, true}) {
    config_.precision.precision = fp8 ? settings::Precision::fp8 : settings::Precision::bf16;
    go_in(fp8 ? "fp8" : "bf16");
    EXPECT_EQ(notes_.find("tensor-stats-every"), std::string::npos) << notes_;
    const auto loads = expert_records();
    ASSERT_EQ(loads.size(), 4U) << "two layers at steps 2 and 4";
    double largest = 0;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      const json::Object& o = loads[i].as_object();
      EXPECT_EQ(o.get_int("layer", "record"), i % 2 == 0 ? 0 : 2) << "layer 1 is dense";
      EXPECT_EQ(o.get_string("module", "record"),
                i % 2 == 0 ? "model.layers.0.mlp.experts" : "model.layers.2.mlp.experts");
      EXPECT_EQ(o.get_int("step", "record"), i < 2 ? 2 : 4);
      EXPECT_EQ(rows_of(loads[i]), kPerToken * 2 * 8);
      for (const json::Value& n : o.get_array("rows", "record"))
        if (i >= 2) largest = std::max(largest, 3 * n.as_double() / (kPerToken * 2 * 8));
    }
    EXPECT_DOUBLE_EQ(field("expert_load_max").back(), largest);
    EXPECT_EQ(read_file(config_.out + "/tensors.jsonl").find("\"operand\"") != std::string::npos, fp8);
  }
}

// The FLOPs of a token are those of its experts alone.
TEST_F(ExpertRun, ThroughputCountsActiveExperts) {
  go_in("run");
  const double linears = 3 * 4 * 32 * 16, dense = 3 * 48 * 32, expert = 3 * 16 * 32, router = 3 * 32, head = 64 * 32;
  const double expected = 6 * (linears + dense + kLayers * (kPerToken * expert + router) + head);
  const std::vector<double> tflops = field("model_tflops"), rate = field("tokens_per_s");
  ASSERT_EQ(tflops.size(), 4U);
  for (std::size_t i = 0; i < tflops.size(); ++i) EXPECT_NEAR(1e12 * tflops[i] / rate[i], expected, 1e-9 * expected);
  config_.precision.precision = settings::Precision::fp8;
  go_in("fp8");
  const double fp8 = linears + dense + kLayers * kPerToken * expert;  // head and routers are not FP8
  for (const double share : field("fp8_flop_share"))
    EXPECT_NEAR(share, fp8 / (fp8 + head + kLayers * router), 1e-9) << "the share of FLOPs of rows that came";
}

TEST_F(ExpertRun, LossesOfExpertsNeedExperts) {
  config_.model = at("m.h5");
  config_.aux_loss = 0.01;
  EXPECT_EQ(refusal(), "--aux-loss: " + at("m.h5") + " has no experts");
  config_.aux_loss = 0, config_.z_loss = 0.01;
  EXPECT_EQ(refusal(), "--z-loss: " + at("m.h5") + " has no experts");
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

// Which rows an expert has depends on the mesh, so that a mask of them would.
TEST_F(ExpertRun, AdaptersOfExpertsHaveNoDropout) {
  const std::string reason =
      "model.layers.0.mlp.experts.0.gate_proj: adapters of experts have no dropout; use --lora-dropout 0, or "
      "--lora-targets without experts";
  config_.lora.rank = 4, config_.lora.dropout = 0.25;
  EXPECT_EQ(refusal(), "--lora-dropout: " + reason);
  EXPECT_FALSE(std::filesystem::exists(at("run")));
  config_.lora.targets = {"q_proj", "model.layers.1.mlp.*"};  // layer 1 is dense
  go_in("others");
  // Adapters that the model has already, or a folder of PEFT.
  hf::ModelConfig model = small_mixture();
  model.lora = hf::LoraConfig{4, 8, false, 0.25, {"model.layers.0.mlp.experts.0.gate_proj"}};
  settings::LoraSettings none;
  try {
    (void)settings::resolve_lora(none, model, "a.h5", {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), "a.h5: " + reason);
  }
  none.dropout = 0;
  EXPECT_EQ(settings::resolve_lora(none, model, "a.h5", {})->dropout, 0);
}

TEST_F(ExpertRun, RoomWithoutEpHasNoEffect) {
  config_.expert_rows = 3;
  go_in("run");
  EXPECT_HOLDS(notes_, "--expert-rows: no effect with --ep 1\n");
}

// A run goes on with other factors only if --change names them.
TEST_F(ExpertRun, FactorsAreSettingsOfARun) {
  EXPECT_EQ(go(2), Exit::again);
  config_.aux_loss = 0.01;
  EXPECT_HOLDS(refusal(), "this run was started with another --aux-loss (0.0, now 0.01)");
  EXPECT_HOLDS(refusal(), "or --change aux-loss to go on");
  config_.change = {"aux-loss"};
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(json::dump(records_.front().as_object().at("changed")), R"([{"name":"aux-loss","old":0.0,"new":0.01}])");
  EXPECT_EQ(field("aux_loss").size(), 2U);
}

}  // namespace
}  // namespace fp8::train
