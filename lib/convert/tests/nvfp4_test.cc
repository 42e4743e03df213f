// FP4 codes in checkpoints and folders, decoded here from their bytes by the published rule: code x scale x amax /
// 2688. The casts themselves are tested in quant.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fp8/ckpt/writer.h"
#include "fp8/convert/convert.h"
#include "fp8/convert/export.h"
#include "fp8/convert/quantize.h"
#include "fp8/dtype/element.h"
#include "fp8/hf/safetensors.h"
#include "fp8/json/json.h"
#include "fp8/model/checkpoint.h"
#include "golden_models.h"
#include "weights.h"

namespace fp8::convert {
namespace {

using dtype::DType;
using test::error_of;
using test::weight;

using Bytes = std::vector<std::byte>;

// A tensor of a checkpoint or of a folder.
struct Stored {
  std::string dtype;
  std::vector<std::int64_t> shape;
  Bytes bytes;
};
using Tensors = std::map<std::string, Stored>;

float e2m1(unsigned code) {
  constexpr std::array<float, 8> kMagnitudes{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  return (code & 8U) != 0 ? -kMagnitudes[code & 7U] : kMagnitudes[code & 7U];
}

float float_of(const Stored& t) {
  float value = 0;
  std::memcpy(&value, t.bytes.data(), sizeof value);
  return value;
}

// Values of codes [rows, cols / 2] with E4M3 scales for 16 columns and `down` rows over the scale of the tensor.
std::vector<float> decoded(const Stored& codes, const Stored& scales, std::int64_t down, float scale) {
  const std::int64_t rows = codes.shape[0], cols = 2 * codes.shape[1];
  std::vector<float> out;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto byte = std::to_integer<unsigned>(codes.bytes.at(static_cast<std::size_t>((r * cols + c) / 2)));
      const auto block =
          std::to_integer<std::uint8_t>(scales.bytes.at(static_cast<std::size_t>(r / down * (cols / 16) + c / 16)));
      out.push_back(e2m1(c % 2 == 0 ? byte & 15U : byte >> 4U) * (dtype::from_e4m3(block) / scale));
    }
  return out;
}

class Nvfp4 : public test::FolderTest {
 protected:
  std::string model(const std::string& name = "llama3") {
    const std::string path = at(name + ".h5");
    if (!std::filesystem::exists(path)) convert(test::golden(name), path, {});
    return path;
  }
  std::string quantized(const std::string& name = "llama3") {
    const std::string path = at(name + "-q.h5");
    if (!std::filesystem::exists(path))
      report_ = quantize(model(name), path, {.scaling = quant::Granularity::block16x16, .format = DType::e2m1});
    return path;
  }
  std::string exported(const std::string& source) {
    export_folder(source, at("hf"), {.format = ExportFormat::nvfp4, .force = true});
    return at("hf");
  }
  static Tensors tensors_of(const std::string& checkpoint) {
    const ckpt::Checkpoint c = ckpt::Checkpoint::open(checkpoint);
    Tensors out;
    for (const ckpt::TensorMeta& meta : c.tensors()) {
      Stored& t = out[meta.name];
      t = {std::string(dtype::name_of(meta.dtype)), meta.shape, Bytes(meta.bytes())};
      c.read(meta.name, t.bytes);
    }
    return out;
  }
  static Tensors files_of(const std::string& folder) {
    const hf::SafetensorsFile file(folder + "/model.safetensors");
    Tensors out;
    for (const hf::TensorInfo& info : file.tensors()) {
      Stored& t = out[info.name];
      t = {info.dtype, info.shape, Bytes(info.end - info.begin)};
      file.read(info, 0, t.bytes);
    }
    return out;
  }
  static std::vector<model::Parameter> linears(const std::string& checkpoint) {
    const ckpt::Checkpoint c = ckpt::Checkpoint::open(checkpoint);
    auto table = model::parameter_table(hf::parse_config(c.config(), "c"));
    std::erase_if(table, [](const auto& p) { return p.role != model::ParameterRole::linear; });
    return table;
  }
  // Writes a checkpoint again after `edit`.
  void rewrite(const std::string& source, const std::string& to, const std::function<void(Tensors&)>& edit) {
    const ckpt::Checkpoint c = ckpt::Checkpoint::open(source);
    Tensors tensors = tensors_of(source);
    edit(tensors);
    ckpt::ModelWriter writer(to, c.kind(), true);
    writer.document("config", c.config());
    for (const auto& [name, t] : tensors) {
      ckpt::TensorMeta meta;
      meta.name = name;
      meta.dtype = *dtype::parse_dtype(t.dtype);
      meta.shape = t.shape;
      writer.tensor(meta, t.bytes);
    }
    writer.commit([](const std::string&) {});
  }
  QuantizeReport report_;
};

TEST_F(Nvfp4, QuantizedWeightsAreCodesTimesScalesTimesAmax) {
  const Tensors q = tensors_of(quantized());
  const ckpt::Checkpoint before = ckpt::Checkpoint::open(model());
  ckpt::Checkpoint::open(quantized()).verify();
  dequantize(quantized(), at("back.h5"), {});
  const ckpt::Checkpoint back = ckpt::Checkpoint::open(at("back.h5"));
  std::size_t count = 0;
  for (const model::Parameter& p : linears(model())) {
    const QuantizedTensor& row = report_.tensors.at(count++);
    const Stored &codes = q.at("weights/" + p.name), &scales = q.at("scales/" + p.name),
                 &global = q.at("globals/" + p.name);
    EXPECT_EQ(codes.dtype, "float4_e2m1fn_x2");
    EXPECT_EQ(codes.shape, (std::vector<std::int64_t>{p.rows(), p.cols() / 2}));
    EXPECT_EQ(scales.dtype, "float8_e4m3fn");
    EXPECT_EQ(scales.shape, (std::vector<std::int64_t>{(p.rows() + 15) / 16, p.cols() / 16}));
    const std::vector<float> x = weight(before, p.name);
    float amax = 0;
    for (const float v : x) amax = std::max(amax, std::abs(v));
    EXPECT_EQ(global.dtype, "float32");
    EXPECT_EQ(float_of(global), amax) << p.name;
    const std::vector<float> y = decoded(codes, scales, 16, 2688 / amax);
    EXPECT_EQ(weight(back, p.name), y) << p.name;
    double signal = 0, noise = 0;
    std::int64_t underflowed = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double a = static_cast<double>(x[i]), b = static_cast<double>(y[i]);
      signal += a * a, noise += (a - b) * (a - b);
      underflowed += a != 0 && b == 0 ? 1 : 0;
    }
    EXPECT_EQ(row.name, p.name);
    EXPECT_NEAR(row.sqnr_db.value(), 10 * std::log10(signal / noise), 1e-9) << p.name;
    EXPECT_GT(row.sqnr_db.value(), 17) << "E2M1 under block scales";
    EXPECT_EQ(row.underflow_share, static_cast<double>(underflowed) / static_cast<double>(p.size()));
    EXPECT_EQ(row.saturated_share, 0);
  }
  EXPECT_EQ(report_.tensors.size(), count);
  quantize(at("back.h5"), at("again.h5"), {.scaling = quant::Granularity::block16x16, .format = DType::e2m1});
  const Tensors again = tensors_of(at("again.h5"));
  for (const model::Parameter& p : linears(model()))
    EXPECT_EQ(again.at("weights/" + p.name).bytes, q.at("weights/" + p.name).bytes) << p.name;
}

TEST_F(Nvfp4, AnExportRepeatsScalesOfBlocksForTheirRows) {
  for (const char* name : {"llama3", "mixtral"}) {
    const Tensors files = files_of(exported(model(name)));
    EXPECT_EQ(convert(at("hf"), at("f32.h5"), {.dtype = DType::f32, .dequantize = true, .force = true}).kind, "model");
    const ckpt::Checkpoint before = ckpt::Checkpoint::open(model(name)), back = ckpt::Checkpoint::open(at("f32.h5"));
    std::map<std::pair<int, model::Slot>, float> largest;  // of the linears that servers compute as one
    for (const model::Parameter& p : linears(model(name))) {
      if (p.expert > 0) continue;
      float& amax = largest[{p.unit, p.slot}];
      for (const float v : weight(before, p.name)) amax = std::max(amax, std::abs(v));
    }
    for (const model::Parameter& p : linears(model(name))) {
      const Stored &codes = files.at(p.name + "_packed"), &scales = files.at(p.name + "_scale"),
                   &global = files.at(p.name + "_global_scale");
      EXPECT_EQ(codes.dtype, "U8");
      EXPECT_EQ(codes.shape, (std::vector<std::int64_t>{p.rows(), p.cols() / 2}));
      EXPECT_EQ(scales.dtype, "F8_E4M3");
      EXPECT_EQ(scales.shape, (std::vector<std::int64_t>{p.rows(), p.cols() / 16}));
      EXPECT_EQ(global.dtype, "F32");
      EXPECT_EQ(global.shape, std::vector<std::int64_t>{1});
      if (p.expert <= 0) {
        EXPECT_EQ(float_of(global), 2688 / largest.at({p.unit, p.slot})) << p.name;
      }
      const std::vector<float> y = decoded(codes, scales, 1, float_of(global)), x = weight(before, p.name);
      EXPECT_EQ(weight(back, p.name), y) << p.name;
      float worst = 0;
      for (std::size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(x[i] - y[i]));
      EXPECT_LT(worst, 0.2F * 2688 / float_of(global)) << p.name;
    }
    const json::Value config = json::parse_file(at("hf") + "/config.json");
    const json::Object& q = config.as_object().get_object("quantization_config", "config");
    EXPECT_EQ(q.get_string("format", "q"), "nvfp4-pack-quantized");
    const json::Object& group = q.get_object("config_groups", "q").get_object("group_0", "q");
    EXPECT_TRUE(group.at("input_activations").is_null());
    EXPECT_EQ(group.get_object("weights", "q").get_int("group_size", "q"), 16);
  }
}

TEST_F(Nvfp4, CodesSurviveAnExportAndItsConversion) {
  // q, k and v of the model have different amaxes, of which a note warns; here they get the same one.
  rewrite(quantized(), at("one.h5"), [](Tensors& t) {
    for (auto& [name, tensor] : t)
      if (name.starts_with("globals/")) tensor.bytes = bytes_of_floats({3.015625F});
  });
  const ConvertReport report = convert(exported(at("one.h5")), at("kept.h5"), {});
  EXPECT_EQ(report.kind, "quantized");
  EXPECT_EQ(report.linears.front().scaling, "nvfp4");
  const Tensors wanted = tensors_of(at("one.h5")), kept = tensors_of(at("kept.h5"));
  ASSERT_EQ(kept.size(), wanted.size());
  std::uint64_t bytes = 0;
  for (const auto& [name, t] : wanted) {
    bytes += t.bytes.size();
    EXPECT_EQ(kept.at(name).bytes, t.bytes) << name;
    EXPECT_EQ(kept.at(name).shape, t.shape) << name;
    EXPECT_EQ(kept.at(name).dtype, t.dtype) << name;
  }
  EXPECT_EQ(report.bytes, bytes);
  const ckpt::Checkpoint q = ckpt::Checkpoint::open(at("kept.h5"));
  q.verify();

  const std::vector<std::string> notes =
      export_folder(quantized(), at("noted"), {.format = ExportFormat::nvfp4, .strict = true}).notes;
  const auto noted = std::ranges::find_if(
      notes, [](const std::string& note) { return note.find("different scales") != std::string::npos; });
  ASSERT_NE(noted, notes.end());
  const std::string& differ = *noted;
  EXPECT_TRUE(differ.starts_with("model.layers.{0-1}.self_attn.q_proj.weight, ")) << differ;
  EXPECT_NE(differ.find("different scales of the tensor"), std::string::npos) << differ;
}

TEST_F(Nvfp4, RowsOfABlockWithDifferentScalesAreDequantizedOnly) {
  const std::string folder = exported(model());
  const std::string path = folder + "/model.safetensors", scales = std::string(kUpWeight) + "_scale";
  std::string file = test::read_file(path);
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  const std::size_t at_row = 8 + header + hf::SafetensorsFile(path).find(scales)->begin + std::size_t{18} * (64 / 16);
  file[at_row] = static_cast<char>(file[at_row] ^ 1);
  test::write_file(path, file);
  const std::string message = error_of([&] { convert(folder, at("out.h5"), {}); });
  EXPECT_EQ(message, folder + ": " + kUpWeight +
                         ": the FP4 scales of rows 16 and 18 differ, and a checkpoint has one for each block of 16x16");
  EXPECT_EQ(convert(folder, at("out.h5"), {.dtype = DType::f32, .dequantize = true}).kind, "model");
  const Tensors files = files_of(folder);
  EXPECT_EQ(weight(ckpt::Checkpoint::open(at("out.h5")), kUpWeight),
            decoded(files.at(std::string(kUpWeight) + "_packed"), files.at(scales), 1,
                    float_of(files.at(std::string(kUpWeight) + "_global_scale"))));
}

TEST_F(Nvfp4, AWeightBelowTheLeastAmaxIsStoredWithIt) {
  const std::string name = kUpWeight;
  rewrite(model(), at("tiny.h5"), [&](Tensors& t) {
    Bytes& bytes = t.at("weights/" + name).bytes;  // 2^-123 in bf16 and, but for 0x1.0004, in f32
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte{i % 2 == 0 ? std::uint8_t{0} : std::uint8_t{2}};
  });
  quantize(at("tiny.h5"), at("tiny-q.h5"), {.scaling = quant::Granularity::block16x16, .format = DType::e2m1});
  EXPECT_EQ(float_of(tensors_of(at("tiny-q.h5")).at("globals/" + name)), 0x1.5p-117F);
  dequantize(at("tiny-q.h5"), at("tiny-back.h5"), {});
  const ckpt::Checkpoint back = ckpt::Checkpoint::open(at("tiny-back.h5"));
  std::vector<float> row(static_cast<std::size_t>(back.at("weights/" + name).shape[1]));
  back.read_rows_as_f32("weights/" + name, 0, 1, row);
  EXPECT_NEAR(row.front() / 0x1p-123F, 1, 0.1);
}

TEST_F(Nvfp4, DamagedCheckpointsAreRefused) {
  const std::string name = kUpWeight, path = at("bad.h5");
  const auto refusal = [&](const std::function<void(Tensors&)>& edit) {
    rewrite(quantized(), path, edit);
    return error_of([&] { dequantize(path, at("no.h5"), {}); });
  };
  EXPECT_EQ(refusal([&](Tensors& t) { t.erase("globals/" + name); }),
            path + ": /weights/" + name + ": FP4 codes without an amax in /globals");
  EXPECT_EQ(refusal([&](Tensors& t) {
              t["globals/" + name] = {"float32", {2}, bytes_of_floats({1, 1})};
            }),
            path + ": /globals/" + name + ": expected one float32 amax");
  EXPECT_EQ(refusal([&](Tensors& t) { t["globals/model.norm.weight"] = t.at("globals/" + name); }),
            path + ": /globals/model.norm.weight: an amax without FP4 codes");
  const auto codes_refusal = [&] {
    const ckpt::Checkpoint c = ckpt::Checkpoint::open(path);
    return error_of([&] { check_codes_of_linears(c, model::parameter_table(hf::parse_config(c.config(), "c"))); });
  };
  EXPECT_EQ(codes_refusal(), path + ": /globals/model.norm.weight: an amax without FP4 codes");
  EXPECT_EQ(error_of([&] { convert(path, at("no.h5"), {}); }),
            path + ": /globals/model.norm.weight: an amax without FP4 codes");
  EXPECT_EQ(refusal([&](Tensors& t) { t.at("globals/" + name).bytes = bytes_of_floats({0}); }),
            path + ": /globals/" + name + ": the amax is 0, but scales of the tensor are not");
  EXPECT_EQ(codes_refusal(), path + ": /globals/" + name + ": the amax is 0, but scales of the tensor are not");
  EXPECT_EQ(refusal([&](Tensors& t) { t.at("globals/" + name).bytes = bytes_of_floats({7e-36F}); }),
            path + ": /globals/" + name + ": the amax is 7e-36, below 7.9e-36, the least whose scale is finite");
  EXPECT_EQ(refusal([&](Tensors& t) { t.erase("scales/" + name); }),
            path + ": /weights/" + name + ": FP4 codes without scales");
  for (const float bad : {-1.0F, std::nanf(""), HUGE_VALF})
    EXPECT_EQ(refusal([&](Tensors& t) { t.at("globals/" + name).bytes = bytes_of_floats({bad}); }),
              path + ": /globals/" + name + ": holds a value that is not finite or below 0");
  EXPECT_EQ(refusal([&](Tensors& t) { t.at("scales/" + name).bytes[1] = std::byte{0xFF}; }),
            path + ": /scales/" + name + ": holds a value that is not finite or below 0");
  EXPECT_EQ(refusal([&](Tensors& t) {
              Stored& scales = t.at("scales/" + name);
              scales.shape = {scales.shape[0] * scales.shape[1]};
            }),
            path + ": /scales/" + name + ": expected an E4M3 scale for each block of 16x16 of FP4 codes");
  EXPECT_NE(refusal([&](Tensors& t) {
              Stored& codes = t.at("weights/" + name);
              codes.shape = {codes.shape[0] / 2, codes.shape[1] * 2};
            }).find("tensors of the wrong shape: " + name),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(at("no.h5")));
}

}  // namespace
}  // namespace fp8::convert
