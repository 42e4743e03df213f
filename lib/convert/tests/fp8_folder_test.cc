// Folders with FP8 weights: codes and scales of an export come back byte for byte, dequantization, and what is refused.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "fp8/convert/convert.h"
#include "fp8/convert/export.h"
#include "fp8/convert/quantize.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/safetensors.h"
#include "fp8/json/json.h"
#include "fp8/model/checkpoint.h"
#include "golden_models.h"
#include "weights.h"

namespace fp8::convert {
namespace {

using test::error_of;
using test::weight;

class Fp8Folder : public test::FolderTest {
 protected:
  std::string model() {
    if (!std::filesystem::exists(at("model.h5"))) convert(test::golden("llama3"), at("model.h5"), {});
    return at("model.h5");
  }
  std::string exported(ExportFormat format, const char* name = "hf") {
    export_folder(model(), at(name), {.format = format, .force = true});
    return at(name);
  }
  // Overwrites bytes of a tensor in the folder's file.
  void poke(const std::string& tensor, std::uint64_t offset, std::span<const std::byte> bytes) {
    const std::string path = at("hf") + "/model.safetensors";
    std::string file = test::read_file(path);
    std::uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    const std::uint64_t begin = 8 + header + hf::SafetensorsFile(path).find(tensor)->begin + offset;
    std::copy_n(reinterpret_cast<const char*>(bytes.data()), bytes.size(), file.begin() + static_cast<long>(begin));
    test::write_file(path, file);
  }
  static std::vector<std::byte> bytes_of(const ckpt::Checkpoint& c, const std::string& name) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(c.at(name).bytes()));
    c.read(name, bytes);
    return bytes;
  }
  static std::vector<std::byte> bytes_of(const hf::SafetensorsFile& file, const std::string& name) {
    const hf::TensorInfo& info = *file.find(name);
    std::vector<std::byte> bytes(info.end - info.begin);
    file.read(info, 0, bytes);
    return bytes;
  }
  std::string out() const { return at("out.h5"); }
};

TEST_F(Fp8Folder, codes_and_scales_are_kept) {
  for (const ExportFormat format : {ExportFormat::fp8, ExportFormat::compressed_tensors}) {
    const std::string suffix = format == ExportFormat::fp8 ? "_scale_inv" : "_scale";
    const ConvertReport report = convert(exported(format), out(), {.force = true});
    EXPECT_EQ(report.kind, "quantized");
    const ckpt::Checkpoint c = ckpt::Checkpoint::open(out());
    c.verify();
    EXPECT_EQ(c.kind(), ckpt::FileKind::quantized);
    const hf::SafetensorsFile file(at("hf") + "/model.safetensors");
    const std::vector<model::Parameter> table = model::parameter_table(hf::parse_config(c.config(), "c"));
    std::size_t codes = 0;
    for (const model::Parameter& p : table) {
      EXPECT_EQ(bytes_of(c, "weights/" + p.name), bytes_of(file, p.name)) << p.name;
      const bool quantized = p.role == model::ParameterRole::linear;
      EXPECT_EQ(c.at("weights/" + p.name).precision, quantized ? "fp8" : "bf16") << p.name;
      if (!quantized) continue;
      ++codes;
      EXPECT_EQ(c.at("weights/" + p.name).dtype, dtype::DType::e4m3);
      EXPECT_EQ(bytes_of(c, "scales/" + p.name), bytes_of(file, p.name + suffix)) << p.name;
    }
    EXPECT_EQ(codes, c.tensors("scales/").size());
    EXPECT_EQ(report.linears.front().scaling, format == ExportFormat::fp8 ? "block" : "row");
    EXPECT_FALSE(c.config().as_object().contains("quantization_config"));
    EXPECT_EQ(report.bytes, export_folder(out(), at("again"), {.format = format, .force = true}).bytes);
    for (const auto& entry : std::filesystem::directory_iterator(at("again"))) {
      const std::string name = entry.path().filename().string();
      EXPECT_EQ(test::read_file(at("again") + "/" + name), test::read_file(at("hf") + "/" + name)) << name;
    }
  }
}

TEST_F(Fp8Folder, the_checkpoint_has_the_tensors_of_quantize) {
  convert(exported(ExportFormat::compressed_tensors), out(), {});
  quantize(model(), at("q.h5"), {.scaling = quant::Granularity::row});
  const ckpt::Checkpoint a = ckpt::Checkpoint::open(out()), b = ckpt::Checkpoint::open(at("q.h5"));
  EXPECT_EQ(a.tensors(), b.tensors());
  for (const ckpt::TensorMeta& meta : b.tensors()) EXPECT_EQ(bytes_of(a, meta.name), bytes_of(b, meta.name));
}

TEST_F(Fp8Folder, dequantized_values_are_codes_times_scales) {
  for (const ExportFormat format : {ExportFormat::fp8, ExportFormat::compressed_tensors}) {
    const std::string folder = exported(format);
    convert(folder, out(), {.force = true});
    dequantize(out(), at("wanted.h5"), {.force = true});
    EXPECT_EQ(convert(folder, at("f32.h5"), {.dtype = dtype::DType::f32, .dequantize = true, .force = true}).kind,
              "model");
    const ConvertReport report = convert(folder, at("bf16.h5"), {.dequantize = true, .force = true});
    EXPECT_TRUE(report.linears.front().scaling.empty());
    const ckpt::Checkpoint wanted = ckpt::Checkpoint::open(at("wanted.h5")), f32 = ckpt::Checkpoint::open(at("f32.h5")),
                           bf16 = ckpt::Checkpoint::open(at("bf16.h5"));
    for (const ckpt::TensorMeta& meta : wanted.tensors("weights/")) {
      const std::string name = meta.name.substr(8);
      std::vector<float> values = weight(wanted, name);
      EXPECT_EQ(weight(f32, name), values) << name;
      EXPECT_EQ(bf16.at(meta.name).dtype, dtype::DType::bf16);
      EXPECT_EQ(bf16.at(meta.name).precision, meta.precision);
      std::vector<std::byte> rounded(values.size() * 2);
      dtype::from_floats(values, dtype::DType::bf16, rounded.data());
      dtype::to_floats(dtype::DType::bf16, rounded.data(), values);
      EXPECT_EQ(weight(bf16, name), values) << name;
    }
  }
}

TEST_F(Fp8Folder, linears_that_the_folder_keeps_in_bf16_stay_so) {
  convert(test::golden("llama3"), model(),
          {.precisions = model::PrecisionRules{.filters = {"*.o_proj"}}, .force = true});
  const ConvertReport kept = convert(exported(ExportFormat::fp8), out(), {});
  const auto o_proj = [](const ConvertReport& report) {
    return *std::find_if(report.linears.begin(), report.linears.end(),
                         [](const model::LinearRow& l) { return l.name.ends_with("o_proj.weight"); });
  };
  EXPECT_FALSE(o_proj(kept).fp8);
  EXPECT_EQ(o_proj(kept).reason, "not quantized in the folder");
  const ConvertReport dequantized = convert(at("hf"), at("d.h5"), {.dequantize = true});
  EXPECT_EQ(o_proj(dequantized).reason, "not quantized in the folder");
  EXPECT_TRUE(dequantized.linears.front().fp8);
  const ConvertReport fresh =
      convert(at("hf"), at("f.h5"), {.precisions = model::PrecisionRules{}, .dequantize = true});
  EXPECT_TRUE(o_proj(fresh).fp8);
}

TEST_F(Fp8Folder, a_dequantized_folder_can_be_padded) {
  const ConvertReport report = convert(exported(ExportFormat::fp8), out(), {.pad = true, .dequantize = true});
  EXPECT_EQ(report.kind, "model");
}

TEST_F(Fp8Folder, options_that_codes_exclude_are_refused) {
  const std::string folder = exported(ExportFormat::fp8);
  const std::string begin = folder + ": holds codes, which are kept; ";
  EXPECT_EQ(error_of([&] { convert(folder, out(), {.dtype = dtype::DType::f32}); }),
            begin + "they have no other format");
  EXPECT_EQ(error_of([&] { convert(folder, out(), {.pad = true}); }), begin + "they are not padded");
  EXPECT_EQ(error_of([&] { convert(folder, out(), {.precisions = model::PrecisionRules{}}); }),
            begin + "they determine which linears are FP8");
  EXPECT_EQ(error_of([&] { convert(test::golden("llama3"), out(), {.dequantize = true}); }),
            test::golden("llama3") + ": has no codes, so there is nothing to dequantize");
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(Fp8Folder, damaged_codes_and_scales_are_refused) {
  exported(ExportFormat::fp8);
  const std::string weights = at("hf") + ": " + kUpWeight;
  const std::byte nan{0x7F};
  poke(kUpWeight, 64 * 3, std::span(&nan, 1));
  EXPECT_EQ(error_of([&] { convert(at("hf"), out(), {}); }),
            out() + ": /weights/" + kUpWeight + ": holds a value that is not finite");
  EXPECT_EQ(error_of([&] { convert(at("hf"), out(), {.dequantize = true}); }),
            weights + ": row 3 is not finite after multiplication by the scale");
  exported(ExportFormat::fp8);
  for (const auto& [bad, text] : {std::pair{0.0F, "0"},
                                  {-1.0F, "-1"},
                                  {HUGE_VALF, "inf"},
                                  {std::nanf(""), "nan"},
                                  {3e38F, "3e+38, and 224 times it is not finite in bf16"}}) {
    poke(std::string(kUpWeight) + "_scale_inv", 4, std::as_bytes(std::span(&bad, 1)));
    for (const bool values : {false, true})
      EXPECT_EQ(error_of([&] { convert(at("hf"), out(), {.dequantize = values}); }),
                weights + "_scale_inv: scale at index 1 is " + text);
  }
  EXPECT_FALSE(std::filesystem::exists(out()));
}

}  // namespace
}  // namespace fp8::convert
