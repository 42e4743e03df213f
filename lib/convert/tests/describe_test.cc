// Descriptions, statistics and distances of small checkpoints with known numbers.
#include "fp8/convert/describe.h"

#include <cmath>
#include <limits>

#include "fp8/ckpt/writer.h"
#include "golden_models.h"

namespace fp8::convert {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class Describe : public test::FolderTest {
 protected:
  // A checkpoint whose only weight is `values` as [n/2, 2] (not a valid model; describe() does not check).
  ckpt::Checkpoint make(const std::string& name, const std::vector<float>& values, std::int64_t heads = 2,
                        const std::string& tensor = "w") {
    ckpt::ModelWriter writer(at(name), ckpt::FileKind::model, true);
    writer.document("config", json::object({{"model_type", "llama"},
                                            {"hidden_size", 16},
                                            {"num_attention_heads", heads},
                                            {"intermediate_size", 16},
                                            {"vocab_size", 16}}));
    ckpt::TensorMeta meta;
    meta.name = "weights/" + tensor;
    meta.shape = {static_cast<std::int64_t>(values.size()) / 2, 2};
    meta.precision = "bf16";
    meta.reason = "because";
    writer.tensor(meta, std::as_bytes(std::span(values)));
    ckpt::TensorMeta scale;
    scale.name = "scales/" + tensor;
    scale.shape = {1};
    const float value = 0.25F;
    writer.tensor(scale, std::as_bytes(std::span(&value, 1)));
    writer.commit([](const std::string&) {});  // also with values that a checkpoint should not hold
    return ckpt::Checkpoint::open(at(name));
  }
};

TEST_F(Describe, Statistics) {
  const ckpt::Checkpoint c = make("a.h5", {1, -3, kNaN, 2, kInf, 0});
  const TensorStatistics s = statistics(c, "weights/w").value();
  EXPECT_EQ(s.mean, 0);
  EXPECT_EQ(s.rms, std::sqrt(14.0 / 4.0));
  EXPECT_EQ(s.absmax, 3);
  EXPECT_EQ(s.nonfinite, 2);
}

TEST_F(Describe, Record) {
  const json::Value record = describe(make("a.h5", {1, -3}), true);
  const json::Object& r = record.as_object();
  EXPECT_EQ(r.at("type").as_string(), "info");
  EXPECT_EQ(r.at("kind").as_string(), "model");
  EXPECT_EQ(r.at("parameters").as_int(), 2);
  EXPECT_EQ(r.at("bytes").as_int(), 12);
  ASSERT_EQ(r.at("tensors").as_array().size(), 2U);
  const json::Object& scale = r.at("tensors").as_array()[0].as_object();
  EXPECT_EQ(scale.at("value").as_double(), 0.25);
  const json::Object& w = r.at("tensors").as_array()[1].as_object();
  EXPECT_EQ(w.at("name").as_string(), "weights/w");
  EXPECT_EQ(w.at("dtype").as_string(), "float32");
  EXPECT_EQ(w.at("shape"), json::Value(json::Array{1, 2}));
  EXPECT_EQ(w.at("reason").as_string(), "because");
  EXPECT_EQ(w.at("mean").as_double(), -1);
  EXPECT_FALSE(
      describe(make("a.h5", {1, -3}), false).as_object().at("tensors").as_array()[1].as_object().contains("rms"));
}

TEST_F(Describe, Distances) {
  const ckpt::Checkpoint a = make("a.h5", {3, 0, 4, kNaN}), b = make("b.h5", {3, 0, 4, kNaN}),
                         c = make("c.h5", {3, 1, 4, kNaN}), d = make("d.h5", {3, 0, 4, 0});
  EXPECT_TRUE(distance(a, b).equal);
  const Distance far = distance(a, c);
  EXPECT_FALSE(far.equal);
  ASSERT_EQ(far.tensors.size(), 2U);
  EXPECT_TRUE(far.tensors[0].equal);
  EXPECT_EQ(far.tensors[1].max_abs, 1);
  EXPECT_EQ(far.tensors[1].relative_l2, 0.2);
  EXPECT_TRUE(std::isnan(distance(a, d).tensors[1].max_abs));
  EXPECT_FALSE(distance(a, d).equal);
}

TEST_F(Describe, OnlyOneIsZero) {
  EXPECT_EQ(distance(make("a.h5", {0, 0}), make("b.h5", {0, 1})).tensors[1].relative_l2, kInf);
}

TEST_F(Describe, OtherTensorsShapesAndConfigurations) {
  const ckpt::Checkpoint a = make("a.h5", {1, 2}), b = make("b.h5", {1, 2}, 2, "v"), c = make("c.h5", {1, 2, 3, 4}),
                         d = make("d.h5", {1, 2}, 4);
  const Distance names = distance(a, b);
  EXPECT_FALSE(names.equal);
  EXPECT_EQ(names.tensors[2].note, "only in B");
  EXPECT_EQ(names.tensors[3].note, "only in A");
  EXPECT_EQ(distance(a, c).tensors[1].note, "shapes differ");
  EXPECT_FALSE(distance(a, d).same_config);
  EXPECT_FALSE(distance(a, d).equal);
}

}  // namespace
}  // namespace fp8::convert
