// Checkpoints to FP8 codes and back: cast weights, copied data and errors. Casts of one matrix are in
// cast_matrix_test.cc.
#include "fp8/convert/quantize.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "fp8/ckpt/writer.h"
#include "fp8/convert/convert.h"
#include "fp8/convert/export.h"
#include "fp8/dtype/convert.h"
#include "fp8/model/checkpoint.h"
#include "golden_models.h"
#include "manifest_parts.h"
#include "weights.h"

namespace fp8::convert {
namespace {

using dtype::DType;
using test::error_of;
using test::golden;
using test::weight;

constexpr const char* kNorm = "model.norm.weight";

// A tensor written by a test.
struct Stored {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  std::string precision{};
};
// By full name.
using Tensors = std::map<std::string, Stored>;

json::Value small_config() {
  return json::object({{"model_type", "llama"},
                       {"vocab_size", 16},
                       {"hidden_size", 16},
                       {"intermediate_size", 32},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 2}});
}

// The small model with -3, -2, ..., 3 repeated in every tensor.
Tensors small_model() {
  Tensors out;
  for (const model::Parameter& p : model::parameter_table(hf::parse_config(small_config(), "c"))) {
    std::vector<float> values(static_cast<std::size_t>(p.size()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
    out["weights/" + p.name] = {DType::f32, p.shape, bytes_of_floats(values)};
  }
  return out;
}

class Quantize : public test::FolderTest {
 protected:
  std::string model() const { return at("m.h5"); }
  std::string out() const { return at("q.h5"); }
  std::string back() const { return at("b.h5"); }

  static void write(const std::string& place, ckpt::FileKind kind, const Tensors& tensors) {
    ckpt::ModelWriter writer(place, kind, true);
    writer.document("config", small_config());
    writer.document("provenance", model::with_origin(nullptr, {"test", "1", "test"}));
    writer.tokenizer("{\"model\":1}");
    writer.huggingface({{"chat_template.jinja", "{{ x }}"}});
    for (const auto& [name, t] : tensors) {
      ckpt::TensorMeta meta;
      meta.name = name;
      meta.dtype = t.dtype;
      meta.shape = t.shape;
      meta.precision = t.precision;
      writer.tensor(meta, t.bytes);
    }
    writer.commit([](const std::string&) {});  // also with values that a checkpoint should not hold
  }
  static Tensors read(const std::string& place) {
    const ckpt::Checkpoint c = ckpt::Checkpoint::open(place);
    Tensors out;
    for (const ckpt::TensorMeta& meta : c.tensors()) {
      Stored t{meta.dtype, meta.shape, std::vector<std::byte>(meta.bytes()), meta.precision};
      c.read(meta.name, t.bytes);
      out[meta.name] = t;
    }
    return out;
  }
  // The error of dequantizing the quantized small model after `edit` has changed its tensors.
  std::string refusal(const std::function<void(Tensors&)>& edit, ckpt::FileKind kind = ckpt::FileKind::quantized) {
    write(model(), ckpt::FileKind::model, small_model());
    quantize(model(), out(), {.scaling = quant::Granularity::row, .force = true});
    Tensors tensors = read(out());
    edit(tensors);
    write(out(), kind, tensors);
    const std::string what = error_of([&] { dequantize(out(), back(), {}); });
    EXPECT_FALSE(std::filesystem::exists(back()));
    return what;
  }
};

TEST_F(Quantize, CastsFp8WeightsAndCopiesTheRest) {
  Tensors tensors = small_model();
  tensors["weights/lm_head.weight"].precision = "fp8";
  tensors["mine/extra"] = {DType::i32, {2}, std::vector<std::byte>(8, std::byte{5})};
  write(model(), ckpt::FileKind::model, tensors);
  const QuantizeReport report = quantize(model(), out(), {.origin = {"fp8-quantize", "1", "x"}});
  const ckpt::Checkpoint q = ckpt::Checkpoint::open(out());
  q.verify();
  EXPECT_EQ(q.kind(), ckpt::FileKind::quantized);
  EXPECT_EQ(q.config(), small_config());
  EXPECT_EQ(q.tokenizer(), "{\"model\":1}");
  EXPECT_EQ(q.huggingface().at("chat_template.jinja"), "{{ x }}");
  ASSERT_EQ(q.provenance().as_array().size(), 2U);
  EXPECT_EQ(q.provenance().as_array()[1].as_object().at("tool").as_string(), "fp8-quantize");
  EXPECT_EQ(report.tensors.size(), 8U);
  EXPECT_EQ(report.tensors.back().name, "lm_head.weight");
  EXPECT_EQ(report.weights, 12);

  std::uint64_t bytes = 0;
  for (const auto& [name, t] : read(out())) {
    if (name.starts_with("mine/")) {
      EXPECT_EQ(t.bytes, tensors[name].bytes);
      continue;
    }
    bytes += t.bytes.size();
    if (name.starts_with("scales/")) {
      // 3 becomes 448.
      EXPECT_EQ(t.shape, std::vector<std::int64_t>{1});
      EXPECT_EQ(t.bytes, bytes_of_floats({1.0F / (448.0F / 3.0F)})) << name;
    } else if (t.precision == "fp8") {
      EXPECT_EQ(t.dtype, DType::e4m3);
      EXPECT_EQ(t.shape, tensors[name].shape);
      EXPECT_EQ(t.bytes[0], std::byte{0xFE}) << "-448, " << name;
      EXPECT_NE(q.find("scales/" + name.substr(8)), nullptr);
    } else {
      EXPECT_EQ(t.dtype, DType::f32);
      EXPECT_EQ(t.bytes, tensors[name].bytes) << name;
    }
  }
  EXPECT_EQ(report.bytes, bytes);
}

TEST_F(Quantize, EachRowHasItsOwnScale) {
  Tensors tensors = small_model();
  std::vector<float> up(32 * 16, 0.0F);
  for (std::size_t r = 0; r < 32; ++r) up[r * 16] = std::ldexp(1.75F, static_cast<int>(r) - 16);
  tensors[std::string("weights/") + kUpWeight].bytes = bytes_of_floats(up);
  write(model(), ckpt::FileKind::model, tensors);
  const QuantizeReport report =
      quantize(model(), out(), {.scaling = quant::Granularity::row, .format = DType::e5m2, .power_of_2 = true});
  Tensors q = read(out());
  const Stored& scales = q[std::string("scales/") + kUpWeight];
  std::vector<float> wanted;  // 1.75 x 2^15 is the largest finite value of E5M2
  for (int r = 0; r < 32; ++r) wanted.push_back(std::ldexp(1.0F, r - 16 - 15));
  EXPECT_EQ(scales.shape, std::vector<std::int64_t>{32});
  EXPECT_EQ(scales.bytes, bytes_of_floats(wanted));
  EXPECT_EQ(q[std::string("weights/") + kUpWeight].bytes[16], std::byte{0x7B}) << "the largest E5M2 code";
  for (const QuantizedTensor& t : report.tensors) {
    EXPECT_FALSE(t.sqnr_db.has_value()) << t.name << ": small integers are exact";
    if (t.name != kUpWeight) continue;
    EXPECT_EQ(t.scale_min, wanted.front());
    EXPECT_EQ(t.scale_max, wanted.back());
  }
}

TEST_F(Quantize, ReportsLosses) {
  // 448 and 12 are exact, 17 becomes 16, 2^-11 underflows: noise 1 + 2^-22.
  Tensors tensors = small_model();
  std::vector<float> up(32 * 16, 0.0F);
  up[0] = 448;
  up[1] = 12;
  up[2] = 17;
  up[511] = 0x1p-11F;
  tensors[std::string("weights/") + kUpWeight].bytes = bytes_of_floats(up);
  write(model(), ckpt::FileKind::model, tensors);
  const QuantizeReport report = quantize(model(), out(), {});
  const auto t = std::find_if(report.tensors.begin(), report.tensors.end(),
                              [](const QuantizedTensor& each) { return each.name == kUpWeight; });
  ASSERT_NE(t, report.tensors.end());
  EXPECT_EQ(t->scale_min, 1.0F);
  EXPECT_EQ(t->scale_max, 1.0F);
  EXPECT_EQ(t->saturated_share, 0.0);
  EXPECT_EQ(t->underflow_share, 1.0 / 512);
  const double signal = 448.0 * 448 + 12 * 12 + 17 * 17 + 0x1p-22, noise = 1 + 0x1p-22;
  EXPECT_DOUBLE_EQ(t->sqnr_db.value(), 10 * std::log10(signal / noise));
}

TEST_F(Quantize, FilteredWeightsAreCopied) {
  write(model(), ckpt::FileKind::model, small_model());
  const QuantizeReport report = quantize(model(), out(), {.filters = {"*.mlp.*", "*.o_proj"}});
  EXPECT_EQ(report.tensors.size(), 3U);
  const ckpt::Checkpoint q = ckpt::Checkpoint::open(out());
  const ckpt::TensorMeta& up = q.at(std::string("weights/") + kUpWeight);
  EXPECT_EQ(up.dtype, DType::f32);
  EXPECT_EQ(up.precision, "bf16");
  EXPECT_EQ(up.reason, "filter *.mlp.*");
  EXPECT_EQ(error_of([&] { quantize(model(), at("x.h5"), {.filters = {"*.w1"}}); }),
            "filter *.w1: matches no tensor of the model");
  EXPECT_EQ(error_of([&] { quantize(model(), at("x.h5"), {.filters = {"*"}}); }),
            model() + ": nothing to quantize: no weight in it has precision fp8");
}

TEST_F(Quantize, DequantizedIsCodesTimesScales) {
  convert(golden("llama3"), model(), {});
  for (const bool power_of_2 : {false, true}) {
    for (const quant::Granularity scaling : {quant::Granularity::tensor, quant::Granularity::row}) {
      quantize(model(), out(), {.scaling = scaling, .power_of_2 = power_of_2, .force = true});
      const DequantizeReport report = dequantize(out(), back(), {.force = true, .origin = {"fp8-quantize", "1", "x"}});
      EXPECT_EQ(report.tensors.size(), 14U);
      dequantize(out(), at("bf16.h5"), {.dtype = DType::bf16, .force = true});
      const ckpt::Checkpoint m = ckpt::Checkpoint::open(model()), q = ckpt::Checkpoint::open(out()),
                             b = ckpt::Checkpoint::open(back()), rounded = ckpt::Checkpoint::open(at("bf16.h5"));
      EXPECT_EQ(b.kind(), ckpt::FileKind::model);
      EXPECT_EQ(b.config().as_object().at("dtype").as_string(), "float32");
      EXPECT_EQ(b.provenance().as_array().size(), 3U);
      EXPECT_TRUE(b.tensors(ckpt::kScales).empty());
      model::check_weights(b, model::parameter_table(hf::parse_config(b.config(), "b")));
      for (const ckpt::TensorMeta& meta : m.tensors()) {
        const std::string name = meta.name.substr(8);
        std::vector<float> wanted = weight(m, name);
        if (meta.precision == "fp8") {
          wanted = weight(q, name);
          std::vector<float> scales(static_cast<std::size_t>(q.at("scales/" + name).rows()));
          q.read("scales/" + name, std::as_writable_bytes(std::span(scales)));
          const std::size_t share = wanted.size() / scales.size();
          for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] *= scales[i / share];
        }
        EXPECT_EQ(b.at(meta.name).dtype, DType::f32);
        EXPECT_EQ(b.at(meta.name).precision, meta.precision);
        EXPECT_EQ(weight(b, name), wanted) << name;
        for (float& v : wanted) v = dtype::to_float(dtype::to_bf16(v));
        EXPECT_EQ(rounded.at(meta.name).dtype, DType::bf16);
        EXPECT_EQ(weight(rounded, name), wanted) << name;
      }
    }
  }
}

TEST_F(Quantize, ASecondCastWithPowersOfTwoIsExact) {
  convert(golden("qwen3"), model(), {});
  quantize(model(), out(), {.power_of_2 = true});
  dequantize(out(), back(), {});
  const QuantizeReport again = quantize(back(), out(), {.power_of_2 = true, .force = true});
  EXPECT_FALSE(again.tensors.empty());
  for (const QuantizedTensor& t : again.tensors) EXPECT_FALSE(t.sqnr_db.has_value()) << t.name;
}

TEST_F(Quantize, ShardsOfATrainingRun) {
  const std::string place = at("step-00000002"), temporary = ckpt::begin_folder(place);
  std::vector<ckpt::FileEntry> entries;
  const Tensors tensors = small_model();
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    ckpt::ShardWriter writer(temporary, rank, 2, ckpt::FileKind::training);
    if (rank == 0) {
      writer.document("config", small_config());
      writer.document("train", json::object({{"step", 2}, {"updates", 2}, {"tokens", 32}}));
    }
    for (const auto& [name, t] : tensors) {
      for (const std::string& full : {name, "optimizer/m/" + name.substr(8)}) {
        ckpt::TensorMeta meta;
        meta.name = full;
        meta.shape = t.shape;
        const std::int64_t half = 5, begin = rank == 0 ? 0 : half, end = rank == 0 ? half : meta.rows();
        writer.tensor(meta, ckpt::rows_block(meta, begin, end),
                      std::span(t.bytes).subspan(static_cast<std::size_t>(begin) * meta.row_bytes(),
                                                 static_cast<std::size_t>(end - begin) * meta.row_bytes()));
      }
    }
    entries.push_back(writer.finish());
  }
  ckpt::commit_folder(temporary, place, ckpt::FileKind::training, test::mesh_of(2), entries);
  write(model(), ckpt::FileKind::model, tensors);
  quantize(place, out(), {});
  quantize(model(), back(), {});
  const Tensors sharded = read(out()), whole = read(back());
  ASSERT_EQ(sharded.size(), whole.size());
  for (const auto& [name, t] : whole) EXPECT_EQ(sharded.at(name).bytes, t.bytes) << name;
}

TEST_F(Quantize, NamesANonFiniteWeight) {
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Tensors tensors = small_model();
    std::memcpy(tensors[std::string("weights/") + kUpWeight].bytes.data() + 4 * (3 * 16 + 5), &poison, 4);
    write(model(), ckpt::FileKind::model, tensors);
    const std::string wanted = model() + ": /weights/" + kUpWeight + ": holds a value that is not finite";
    for (const quant::Granularity scaling : {quant::Granularity::tensor, quant::Granularity::row,
                                             quant::Granularity::block128x128, quant::Granularity::block1x32}) {
      EXPECT_EQ(error_of([&] { quantize(model(), out(), {.scaling = scaling}); }), wanted);
      EXPECT_EQ(error_of([&] { quantize(model(), out(), {.scaling = scaling, .dry_run = true}); }), wanted);
    }
    EXPECT_EQ(names(), std::vector<std::string>{"m.h5"});
  }
}

TEST_F(Quantize, SaysWhichCodesAreInfinite) {
  Tensors tensors = small_model();
  std::vector<std::byte>& up = tensors[std::string("weights/") + kUpWeight].bytes;
  const auto report = [&](float first) {
    std::memcpy(up.data(), &first, sizeof first);
    write(model(), ckpt::FileKind::model, tensors);
    return quantize(model(), out(), {.scaling = quant::Granularity::row, .power_of_2 = true, .force = true});
  };
  for (const QuantizedTensor& t : report(0x1.84p127F).tensors) EXPECT_FALSE(t.infinite) << t.name;
  dequantize(out(), back(), {});
  std::filesystem::remove(back());
  for (const QuantizedTensor& t : report(0x1.FEp127F).tensors) EXPECT_EQ(t.infinite, t.name == kUpWeight) << t.name;
  EXPECT_EQ(error_of([&] { dequantize(out(), back(), {}); }),
            out() + ": /weights/" + kUpWeight + ": row 0 is not finite after multiplication by the scale");
}

TEST_F(Quantize, AFiniteWeightThatBf16CannotHoldIsNotWrittenAsInfinity) {
  Tensors tensors = small_model();
  const float largest = std::numeric_limits<float>::max();
  std::memcpy(tensors["weights/lm_head.weight"].bytes.data() + 4 * 16, &largest, sizeof largest);
  write(model(), ckpt::FileKind::model, tensors);
  const std::string why = "lm_head.weight: row 1: 3.40282e+38 is not finite in bf16";
  EXPECT_EQ(error_of([&] { export_folder(model(), at("folder"), {}); }), model() + ": /weights/" + why);
  EXPECT_EQ(error_of([&] { convert(model(), back(), {.dtype = DType::bf16}); }), model() + ": " + why);
  quantize(model(), out(), {});
  EXPECT_EQ(error_of([&] { dequantize(out(), back(), {.dtype = DType::bf16}); }), out() + ": /weights/" + why);
}

TEST_F(Quantize, RefusesInvalidSourcesAndOutputs) {
  write(model(), ckpt::FileKind::model, small_model());
  quantize(model(), out(), {});
  EXPECT_EQ(error_of([&] { quantize(out(), back(), {}); }),
            out() + ": already quantized; use the checkpoint that it was made from, or dequantize it first");
  EXPECT_EQ(error_of([&] { dequantize(model(), back(), {}); }),
            model() + ": not quantized (its kind is model), so there is nothing to dequantize");
  EXPECT_EQ(error_of([&] { quantize(model(), out(), {}); }), out() + ": exists");
  EXPECT_EQ(error_of([&] { dequantize(out(), model(), {}); }), model() + ": exists");
  EXPECT_EQ(error_of([&] { quantize(model(), back(), {.format = DType::bf16}); }), "bfloat16: not an FP8 format");
  EXPECT_EQ(error_of([&] { dequantize(out(), back(), {.dtype = DType::f16}); }), "dtype: weights are f32 or bf16");
  Tensors tensors = small_model();
  tensors[std::string("weights/") + kUpWeight].dtype = DType::i32;
  write(model(), ckpt::FileKind::model, tensors);
  EXPECT_EQ(error_of([&] { quantize(model(), back(), {}); }),
            model() + ": /weights/" + kUpWeight + ": stored as int32, not as float32 or bfloat16");
  tensors.erase(std::string("weights/") + kNorm);
  write(model(), ckpt::FileKind::model, tensors);
  EXPECT_EQ(error_of([&] { quantize(model(), back(), {}); }), model() + ": missing tensors: model.norm.weight");
}

TEST_F(Quantize, DryRunReportsTheSameAndWritesNothing) {
  convert(golden("llama3"), model(), {});
  const QuantizeReport dry = quantize(model(), out(), {.dry_run = true});
  EXPECT_EQ(names(), std::vector<std::string>{"m.h5"});
  const QuantizeReport wet = quantize(model(), out(), {});
  ASSERT_EQ(dry.tensors.size(), wet.tensors.size());
  EXPECT_EQ(dry.bytes, wet.bytes);
  for (std::size_t i = 0; i < dry.tensors.size(); ++i) {
    EXPECT_EQ(dry.tensors[i].sqnr_db, wet.tensors[i].sqnr_db);
    EXPECT_GE(dry.tensors[i].sqnr_db.value(), 25.0);
  }
  EXPECT_EQ(dequantize(out(), back(), {.dry_run = true}).tensors.size(), 14U);
  EXPECT_FALSE(std::filesystem::exists(back()));
}

TEST_F(Quantize, CodesAndScalesThatDoNotMatch) {
  const std::string codes = std::string("weights/") + kUpWeight, scales = std::string("scales/") + kUpWeight;
  EXPECT_EQ(refusal([&](Tensors& t) { t.erase(scales); }), out() + ": /" + codes + ": FP8 codes without scales");
  const std::string shape = out() + ": /" + scales +
                            ": expected one float32 scale or one for each of the 32 rows of the codes, or for each "
                            "block of 128x128, or E8M0 for each of 1x32";
  EXPECT_EQ(refusal([&](Tensors& t) {
              t[scales].shape = {31};
              t[scales].bytes.resize(31 * 4);
            }),
            shape);
  EXPECT_EQ(refusal([&](Tensors& t) { t[scales].shape = {1, 32}; }), shape);
  EXPECT_EQ(refusal([&](Tensors& t) { t[scales].dtype = DType::u32; }), shape);
  for (const float bad :
       {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(refusal([&](Tensors& t) { std::memcpy(t[scales].bytes.data() + 4 * 7, &bad, 4); }),
              out() + ": /" + scales +
                  (bad == 0 ? ": scale at index 7 is 0" : ": holds a value that is not finite or below 0"));
  }
  EXPECT_EQ(refusal([&](Tensors& t) { t[codes].bytes[2 * 16] = std::byte{0x7F}; }),
            out() + ": /" + codes + ": holds a value that is not finite");
  EXPECT_EQ(refusal([&](Tensors& t) {
              constexpr float kHuge = 3e38F;
              std::memcpy(t[scales].bytes.data() + 4 * 2, &kHuge, 4);
            }),
            out() + ": /" + scales + ": scale at index 2 is 3e+38, and 224 times it is not finite in bf16");
  EXPECT_EQ(refusal([&](Tensors& t) {
              t[std::string("scales/") + kNorm] = {DType::f32, {1}, bytes_of_floats({1})};
            }),
            out() + ": /scales/model.norm.weight: scales without codes");
  EXPECT_EQ(refusal([&](Tensors& t) { t = small_model(); }),
            out() + ": marked as quantized, but no weight contains codes");
  EXPECT_EQ(refusal([&](Tensors& t) { t[codes].dtype = DType::u8; }),
            out() + ": /" + codes + ": stored as uint8, not as float32 or bfloat16");
}

}  // namespace
}  // namespace fp8::convert
