// Casts, scales and linear layers against the values of PyTorch and torchao in tests/golden/casts, within the bounds of
// its README. Codes and scales are compared bit for bit, including the sign of zero; all NaNs are equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/dtype/convert.h"
#include "fp8/gemm/gemm.h"
#include "fp8/linear/linear.h"
#include "fp8/quant/history.h"
#include "fp8/quant/quantize.h"
#include "fp8/quant/recipe.h"
#include "fp8/quant/scale.h"
#include "fp8_codes.h"
#include "plain_file.h"
#include "same.h"

namespace fp8 {
namespace {

using dtype::Bf16;
using dtype::DType;
using golden::same;
using quant::ContractionAxis;
using quant::Granularity;
using tensor::Tensor;
using tensor::View;

test::PlainFile golden_casts(const std::string& name) { return test::PlainFile("tests/golden/casts/" + name); }

// Whether the codes are equal or both NaN.
bool same_code(DType format, std::uint8_t a, std::uint8_t b) {
  const auto value = format == DType::e4m3 ? dtype::from_e4m3 : dtype::from_e5m2;
  return a == b || (std::isnan(value(a)) && std::isnan(value(b)));
}

std::uint8_t encode(DType format, float v) { return format == DType::e4m3 ? dtype::to_e4m3(v) : dtype::to_e5m2(v); }
float round_to(DType format, float v) {
  return format == DType::e4m3 ? dtype::round_to_e4m3(v) : dtype::round_to_e5m2(v);
}
float decode(DType format, std::uint8_t c) { return format == DType::e4m3 ? dtype::from_e4m3(c) : dtype::from_e5m2(c); }

// Reads a matrix of a file; converts if `as` (f32 or bf16) is not the stored type.
Tensor load(const test::PlainFile& file, const std::string& name, DType as) {
  const h5::Entry& entry = file.at(name);
  Tensor stored(entry.dtype, {entry.shape.at(0), entry.shape.at(1)});
  file.read(name, {static_cast<std::byte*>(stored.view().data), static_cast<std::size_t>(entry.bytes)});
  if (entry.dtype == as) return stored;
  Tensor converted(as, {entry.shape.at(0), entry.shape.at(1)});
  std::vector<float> floats(static_cast<std::size_t>(stored.view().size()));
  dtype::to_floats(entry.dtype, stored.view().data, floats);
  dtype::from_floats(floats, as, converted.view().data);
  return converted;
}

struct FormatName {
  DType format;
  std::string name;
};
const FormatName kFormats[] = {{DType::e4m3, "e4m3"}, {DType::e5m2, "e5m2"}};

TEST(Codes, EncodeEveryBf16) {
  const test::PlainFile file = golden_casts("codes.h5");
  for (const auto& [format, name] : kFormats) {
    const auto codes = file.read_as<std::uint8_t>("bf16/" + name + "_codes");
    ASSERT_EQ(codes.size(), 65536u);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const float v = dtype::to_float(Bf16{static_cast<std::uint16_t>(i)});
      ASSERT_TRUE(same_code(format, encode(format, v), codes[i])) << name << " of bf16 " << i;
      ASSERT_TRUE(same(round_to(format, v), decode(format, codes[i]))) << name << " of bf16 " << i;
    }
  }
}

TEST(Codes, EncodeFloats) {
  const test::PlainFile file = golden_casts("codes.h5");
  const auto bits = file.read_as<std::uint32_t>("f32/bits");
  ASSERT_EQ(bits.size(), 20000u);
  for (const auto& [format, name] : kFormats) {
    const auto codes = file.read_as<std::uint8_t>("f32/" + name + "_codes");
    ASSERT_EQ(codes.size(), bits.size());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float v = std::bit_cast<float>(bits[i]);
      ASSERT_TRUE(same_code(format, encode(format, v), codes[i])) << name << " of " << std::hexfloat << v;
      ASSERT_TRUE(same(round_to(format, v), decode(format, codes[i]))) << name << " of " << std::hexfloat << v;
    }
  }
}

TEST(Codes, Decode) {
  const test::PlainFile file = golden_casts("codes.h5");
  const auto e8m0 = file.read_as<float>("decode/e8m0");
  const auto e4m3 = file.read_as<float>("decode/e4m3"), e5m2 = file.read_as<float>("decode/e5m2");
  for (std::size_t i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    EXPECT_TRUE(same(dtype::from_e8m0(code), e8m0.at(i))) << i;
    EXPECT_TRUE(same(dtype::from_e4m3(code), e4m3.at(i))) << i;
    EXPECT_TRUE(same(dtype::from_e5m2(code), e5m2.at(i))) << i;
  }
}

TEST(Scales, MatchForEveryAmax) {
  const test::PlainFile file = golden_casts("scales.h5");
  const auto check = [&](const std::string& amax_name, const std::string& scale_name, DType format, bool power_of_2,
                         quant::ScaleRule rule = quant::ScaleRule::torchao) {
    const auto amax = file.read_as<float>(amax_name), scale = file.read_as<float>(scale_name);
    ASSERT_EQ(amax.size(), scale.size());
    ASSERT_GT(amax.size(), 0u);
    for (std::size_t i = 0; i < amax.size(); ++i)
      ASSERT_TRUE(same(quant::scale_by_rule(rule, amax[i], dtype::max_of(format), power_of_2), scale[i]))
          << scale_name << " of " << std::hexfloat << amax[i];
  };
  for (const auto& [format, name] : kFormats) {
    check("amax", name + "_scale", format, false);
    check("amax", name + "_scale_pow2", format, true);
    check("amax", "te_current/" + name + "_scale", format, false, quant::ScaleRule::current);
    const std::string differences = "known_differences/" + name + "_pow2/";
    check(differences + "amax", differences + "rule_scale", format, true);
  }
}

// Scales and histories of 60 updates, for both algorithms, formats and two margins.
TEST(Delayed, SequencesMatch) {
  const test::PlainFile file = golden_casts("delayed.h5");
  int checked = 0;
  for (const h5::Entry& entry : file.list()) {
    if (!entry.name.ends_with("/scale")) continue;
    const std::string group = entry.name.substr(0, entry.name.size() - 5);
    const auto amax = file.read_as<float>(group + "amax"), initial = file.read_as<float>(group + "initial_history"),
               expected = file.read_as<float>(entry.name), tails = file.read_as<float>(group + "history_tail"),
               last = file.read_as<float>(group + "final_history");
    const std::size_t steps = amax.size(), tail = tails.size() / steps;
    for (std::size_t variant = 0; variant < 8; ++variant) {
      const auto algorithm = variant < 4 ? quant::AmaxAlgorithm::max : quant::AmaxAlgorithm::most_recent;
      const DType format = variant % 4 < 2 ? DType::e4m3 : DType::e5m2;
      const quant::DelayedRule rule = quant::delayed_rule(format, variant % 2 == 0 ? 0 : 2, algorithm);
      std::vector<float> history = initial;
      float scale = file.read_as<float>(group + "initial_scale").at(0);
      for (std::size_t s = 0; s < steps; ++s) {
        history[0] = amax[s];
        scale = quant::update_history(history, rule, scale);
        ASSERT_TRUE(same(scale, expected.at(variant * steps + s))) << entry.name << " " << variant << " " << s;
        for (std::size_t i = 0; i < tail; ++i)
          ASSERT_TRUE(same(history[history.size() - tail + i], tails[s * tail + i])) << group << s << " " << i;
      }
      for (std::size_t i = 0; i < last.size(); ++i) ASSERT_TRUE(same(history.at(i), last[i])) << group << i;
      ++checked;
    }
  }
  EXPECT_GE(checked, 8);
}

struct Mode {
  std::string name;
  quant::Cast cast;
  ContractionAxis contract;
};
const Mode kModes[] = {{"tensorwise_e4m3", {DType::e4m3, Granularity::tensor}, ContractionAxis::last},
                       {"tensorwise_e5m2", {DType::e5m2, Granularity::tensor}, ContractionAxis::last},
                       {"per_row_e4m3", {DType::e4m3, Granularity::row}, ContractionAxis::last},
                       {"per_column_e4m3", {DType::e4m3, Granularity::row}, ContractionAxis::first}};

// Compares quantize() and, for modes with one scale, cast_to_bytes() with one case and mode.
void check_tensor(const View& x, const Mode& mode, bool power_of_2, const std::vector<std::uint8_t>& codes,
                  const std::vector<float>& scales) {
  device::Arena arena(std::size_t{1} << 20, device::DeviceType::host);
  const device::Context context{.arena = &arena};
  const auto n = static_cast<std::int64_t>(scales.size());
  const Tensor amax(DType::f32, {n});
  quant::amax(context, x, mode.cast.granularity, mode.contract, amax.view());
  const auto q = quant::quantize(context, x, mode.cast, mode.contract, {power_of_2, nullptr});
  ASSERT_EQ(q.inverse_scale.size(), n);
  for (std::int64_t i = 0; i < n; ++i) {
    const float scale = scales[static_cast<std::size_t>(i)];
    ASSERT_TRUE(same(quant::scale_from_amax(amax.as<float>()[i], dtype::max_of(mode.cast.format), power_of_2), scale))
        << i;
    ASSERT_TRUE(same(q.inverse_scale.as<float>()[i], 1.0f / scale)) << i;
  }
  ASSERT_EQ(static_cast<std::size_t>(q.codes.size()), codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i)
    ASSERT_TRUE(same(dtype::to_float(q.codes.as<Bf16>()[i]), decode(mode.cast.format, codes[i]))) << i;
  if (mode.cast.granularity != Granularity::tensor) return;
  const Tensor bytes(DType::u8, {x.shape[0], x.shape[1]});
  quant::cast_to_bytes(context, x, mode.cast.format, scales.data(), bytes.view(), nullptr);
  for (std::size_t i = 0; i < codes.size(); ++i)
    ASSERT_TRUE(same_code(mode.cast.format, bytes.as<std::uint8_t>()[i], codes[i])) << i;
}

TEST(Tensors, MatchInEveryCaseAndMode) {
  const test::PlainFile file = golden_casts("tensors.h5");
  int cases = 0, checked = 0;
  for (const std::string& name : file.groups()) {
    if (name.empty()) continue;
    ++cases;
    const Tensor x = load(file, name + "/x", file.at(name + "/x").dtype);
    for (const Mode& mode : kModes)
      for (const bool power_of_2 : {false, true}) {
        const std::string prefix = name + "/" + mode.name + (power_of_2 ? "_pow2" : "");
        SCOPED_TRACE(prefix);
        if (file.find(prefix + "_codes") == nullptr) continue;
        check_tensor(x.view(), mode, power_of_2, file.read_as<std::uint8_t>(prefix + "_codes"),
                     file.read_as<float>(prefix + "_scale"));
        ++checked;
      }
  }
  EXPECT_EQ(cases, 27);
  EXPECT_GE(checked, 26 * 8) << "one case has only the defaults of the recipes";
}

// Value (r, c) of a view.
float element(const View& v, std::int64_t r, std::int64_t c) {
  const std::int64_t at = r * v.stride[0] + c * v.stride[1];
  return v.dtype == DType::f32 ? v.as<float>()[at] : dtype::to_float(v.as<Bf16>()[at]);
}

// How a stored matrix was cast with blocks.
struct BlockMode {
  std::string name;
  Granularity granularity;
  ContractionAxis contract;
};
const BlockMode kBlockModes[] = {{"1x128", Granularity::block1x128, ContractionAxis::last},
                                 {"128x1", Granularity::block1x128, ContractionAxis::first},
                                 {"128x128", Granularity::block128x128, ContractionAxis::last},
                                 {"128x128", Granularity::block128x128, ContractionAxis::first}};

// Expected results of a cast with blocks.
struct BlockValues {
  std::vector<std::uint8_t> codes;
  std::vector<float> scale;  // factor of x
  bool inverse = false;      // `scale` is its reciprocal
};

// Compares quantize() with stored codes and scales, which are row-major.
void check_blocks(const View& x, const quant::Cast& cast, ContractionAxis contract, bool power_of_2,
                  const BlockValues& expected) {
  device::Arena arena(std::size_t{4} << 20, device::DeviceType::host);
  const device::Context context{.arena = &arena};
  const quant::BlockExtent block = quant::block_extent(cast.granularity);
  const bool last = contract == ContractionAxis::last;
  const std::int64_t along = last ? block.along : block.across, down = last ? block.across : block.along;
  for (const bool fold : {false, true}) {
    const device::Scope scope(arena);
    const auto q = quant::quantize(context, x, cast, contract, {.power_of_2 = power_of_2, .fold = fold});
    const std::int64_t across = q.scale.shape[1];
    ASSERT_EQ(static_cast<std::size_t>(q.scale.size()), expected.scale.size());
    for (std::int64_t r = 0; r < q.scale.shape[0]; ++r)
      for (std::int64_t c = 0; c < across; ++c) {
        const float stored = expected.scale[static_cast<std::size_t>(r * across + c)];
        const View& mine = expected.inverse ? q.inverse_scale : q.scale;
        ASSERT_TRUE(same(element(mine, r, c), stored)) << "scale " << r << ' ' << c;
      }
    const std::int64_t cols = x.shape[1];
    const View values = quant::dequantize(context, q);
    ASSERT_EQ(static_cast<std::size_t>(q.codes.size()), expected.codes.size());
    for (std::int64_t r = 0; r < x.shape[0]; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const float code = decode(cast.format, expected.codes[static_cast<std::size_t>(r * cols + c)]);
        if (q.folded) {
          const float scale = element(q.scale, r / down, c / along);
          ASSERT_TRUE(same(element(values, r, c), code / scale)) << r << ' ' << c;
        } else {
          ASSERT_TRUE(same(element(q.codes, r, c), code)) << r << ' ' << c;
        }
      }
  }
}

BlockValues block_values(const test::PlainFile& file, const std::string& prefix, const std::string& scale) {
  return {file.read_as<std::uint8_t>(prefix + "codes"), file.read_as<float>(prefix + scale), scale == "scale_inv"};
}

TEST(Blockwise, MatchesTransformerEngineInEveryCase) {
  const test::PlainFile file = golden_casts("blockwise.h5");
  int cases = 0, checked = 0, tiles = 0;
  for (const std::string& name : file.groups()) {
    if (file.find(name + "/x") == nullptr) continue;
    ++cases;
    const Tensor x = load(file, name + "/x", file.at(name + "/x").dtype);
    for (const BlockMode& mode : kBlockModes) {
      const quant::Cast cast{DType::e4m3, mode.granularity};
      for (const std::string variant : {"/te_pow2_", "/te_"}) {
        const std::string prefix = name + variant + mode.name + "_";
        SCOPED_TRACE(prefix);
        if (file.find(prefix + "codes") == nullptr) continue;
        check_blocks(x.view(), cast, mode.contract, variant == "/te_pow2_", block_values(file, prefix, "scale"));
        ++checked;
      }
      // NaN does not enter the amax.
      const std::string prefix = name + "/" + mode.name + "_nan_ignored_";
      SCOPED_TRACE(prefix);
      if (file.find(prefix + "codes") == nullptr) continue;
      check_blocks(x.view(), cast, mode.contract, true, block_values(file, prefix, "scale"));
      ++tiles;
    }
  }
  EXPECT_GT(cases, 1);
  EXPECT_EQ(checked, 68);
  EXPECT_EQ(tiles, 4);
}

TEST(Blockwise, ScalesMatchForEveryAmax) {
  const test::PlainFile file = golden_casts("scales.h5");
  const auto amax = file.read_as<float>("amax");
  for (const bool power_of_2 : {false, true})
    for (const std::string type : {"bf16", "f32"}) {
      const auto scale =
          file.read_as<float>("te_blockwise/e4m3_scale" + std::string(power_of_2 ? "_pow2_" : "_") + type);
      ASSERT_EQ(scale.size(), amax.size());
      const quant::BlockRule rule = type == "f32"
                                        ? quant::block_rule<float>(Granularity::block1x128, 448.0f, power_of_2)
                                        : quant::block_rule<Bf16>(Granularity::block1x128, 448.0f, power_of_2);
      for (std::size_t i = 0; i < amax.size(); ++i)
        ASSERT_TRUE(std::isnan(amax[i]) || same(rule(amax[i]).scale, scale[i])) << std::hexfloat << amax[i];
    }
}

// Blocks of 32 along the columns: the exponent rounded up, then the codes.
void check_mx_blocks(const test::PlainFile& file, DType format, const std::string& x_name, const std::string& prefix) {
  const DType type = file.at(x_name).dtype;
  const Tensor x = load(file, x_name, type == DType::bf16 ? type : DType::f32);
  const auto exponents = file.read_as<std::uint8_t>(prefix + "_scale");
  BlockValues expected{file.read_as<std::uint8_t>(prefix + "_codes"), {}, true};
  for (const std::uint8_t exponent : exponents) expected.scale.push_back(dtype::from_e8m0(exponent));
  check_blocks(x.view(), {format, Granularity::block1x32}, ContractionAxis::last, false, expected);
}

TEST(MxBlocks, MatchWithExponentsRoundedUp) {
  const test::PlainFile file = golden_casts("mx.h5");
  int checked = 0;
  for (const h5::Entry& entry : file.list())
    for (const auto& [format, name] : kFormats) {
      const std::string folder = entry.name.substr(0, entry.name.rfind('/') + 1);
      const bool differences = folder == "known_differences/rceil_" + name + "/";
      const std::string prefix = folder + (differences ? "rule" : "rceil_" + name);
      if (entry.name != folder + "x" || file.find(prefix + "_scale") == nullptr) continue;
      check_mx_blocks(file, format, entry.name, prefix);
      ++checked;
    }
  EXPECT_EQ(checked, 20);
}

// Results of one linear layer, and the file of their expected values.
struct Layer {
  Layer(const test::PlainFile& file, const std::string& name, DType activations)
      : x(load(file, name + "/x", activations)),
        w(load(file, name + "/w", activations)),
        dy(load(file, name + "/dy", activations)),
        y(activations, {x.view().shape[0], w.view().shape[0]}),
        dx(activations, {x.view().shape[0], x.view().shape[1]}),
        dw(DType::f32, {w.view().shape[0], w.view().shape[1]}),
        arena(std::size_t{1} << 22, device::DeviceType::host) {}

  // Runs forward and backward with a recipe; null: without FP8.
  void run(const quant::Recipe* recipe) {
    const device::Context context{.arena = &arena};
    const std::vector<linear::Part> parts{{0, w.view().shape[0], recipe != nullptr}};
    const linear::LinearPrecision precision{recipe, {recipe != nullptr && recipe->power_of_2, nullptr}};
    linear::forward(context, engine, linear::prepare(context, w.view(), {}, parts, precision, linear::Pass::forward),
                    x.view(), y.view());
    linear::backward(context, engine, linear::prepare(context, w.view(), {}, parts, precision, linear::Pass::backward),
                     x.view(), dy.view(), {dx.view(), dw.view(), {}, false});
  }

  Tensor x, w, dy, y, dx, dw;
  device::Arena arena;
  gemm::Engine engine;
};

std::vector<double> doubles_of(const View& v) {
  std::vector<float> floats(static_cast<std::size_t>(v.size()));
  dtype::to_floats(v.dtype, v.data, floats);
  return {floats.begin(), floats.end()};
}

std::vector<double> doubles_of(const test::PlainFile& file, const std::string& name) {
  const h5::Entry& entry = file.at(name);
  if (entry.dtype == DType::f64) return file.read_as<double>(name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.bytes));
  file.read(name, bytes);
  std::vector<float> floats(bytes.size() / dtype::size_of(entry.dtype));
  dtype::to_floats(entry.dtype, bytes.data(), floats);
  return {floats.begin(), floats.end()};
}

double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (const double e : v) sum += e * e;
  return std::sqrt(sum);
}

double largest(const std::vector<double>& v) {
  double m = 0;
  for (const double e : v) m = std::max(m, std::fabs(e));
  return m;
}

std::vector<double> difference(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b.at(i);
  return a;
}

// Distance between neighbouring bf16 values at v.
double bf16_spacing(double v) { return v == 0 ? 0x1p-133 : std::ldexp(1.0, std::max(std::ilogb(v), -126) - 7); }

double sqnr_db(const std::vector<double>& exact, const std::vector<double>& value) {
  return 20 * std::log10(norm_of(exact) / norm_of(difference(exact, value)));
}

using Results = std::vector<std::pair<std::string, const Tensor*>>;
Results results(const Layer& layer) { return {{"y", &layer.y}, {"dx", &layer.dx}, {"dw", &layer.dw}}; }

// The recipes whose values linear.h5 has, which are the ones with scales of tensors and rows.
std::vector<quant::Recipe> stored_recipes() {
  std::vector<quant::Recipe> stored;
  for (const quant::Recipe& recipe : quant::recipes())
    if (recipe.scale_rule != quant::ScaleRule::blockwise && recipe.scale_rule != quant::ScaleRule::mx && !recipe.fp4())
      stored.push_back(recipe);
  return stored;
}

// The group of linear.h5 with the values of a recipe. The rule of current differs from that of tensorwise for amaxes of
// 0, infinity and NaN alone, which the file does not have; without a history, so does that of delayed.
std::string group_of(const quant::Recipe& recipe) {
  const bool like_tensorwise =
      recipe.scale_rule == quant::ScaleRule::current || recipe.scale_rule == quant::ScaleRule::delayed;
  return like_tensorwise ? "tensorwise" : std::string(recipe.name);
}

// The names of the layers of linear.h5.
std::vector<std::string> layers(const test::PlainFile& file) {
  std::vector<std::string> names;
  for (const std::string& name : file.groups())
    if (!name.empty() && name.find('/') == std::string::npos) names.push_back(name);
  return names;
}

TEST(Linear, RecipesMatchInF32) {
  const test::PlainFile file = golden_casts("linear.h5");
  ASSERT_FALSE(layers(file).empty());
  for (const std::string& name : layers(file))
    for (const quant::Recipe& recipe : stored_recipes()) {
      const std::string folder = name + "/" + group_of(recipe) + "/";
      ASSERT_NE(file.find(folder + "y"), nullptr) << folder;
      Layer layer(file, name, DType::f32);
      layer.run(&recipe);
      EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, recipe.fp8_gemms());
      for (const auto& [result, tensor] : results(layer)) {
        const auto value = doubles_of(tensor->view()), expected = doubles_of(file, folder + result);
        const auto error = difference(value, expected);
        EXPECT_LE(norm_of(error), 1e-6 * norm_of(expected)) << folder << result;
        EXPECT_LE(largest(error), 1e-6 * largest(expected)) << folder << result;
        const auto stated = std::get<double>(file.at(folder + result).attributes.at("sqnr_db"));
        EXPECT_NEAR(sqnr_db(doubles_of(file, name + "/float64/" + result), value), stated, 0.1) << folder << result;
      }
    }
}

TEST(Linear, RecipesMatchInBf16) {
  const test::PlainFile file = golden_casts("linear.h5");
  for (const std::string& name : layers(file))
    for (const quant::Recipe& recipe : stored_recipes()) {
      Layer layer(file, name, DType::bf16);
      layer.run(&recipe);
      for (const auto& [result, tensor] : results(layer)) {
        const std::string stored = name + "/" + group_of(recipe) + "/" + result;
        const auto value = doubles_of(tensor->view()), expected = doubles_of(file, stored);
        // One bf16 ulp, plus the difference of the float32 sums where terms cancel.
        const double slack = 1e-6 * largest(expected);
        for (std::size_t i = 0; i < value.size(); ++i)
          ASSERT_NEAR(value[i], expected.at(i), bf16_spacing(expected[i]) + slack) << stored << " " << i;
      }
    }
}

TEST(Linear, HighPrecisionMatches) {
  const test::PlainFile file = golden_casts("linear.h5");
  for (const std::string& name : layers(file)) {
    Layer bf16(file, name, DType::bf16), f32(file, name, DType::f32);
    bf16.run(nullptr);
    f32.run(nullptr);
    for (const auto& [result, tensor] : results(bf16)) {
      const auto value = doubles_of(tensor->view()), expected = doubles_of(file, name + "/bf16/" + result);
      const double slack = 1e-6 * largest(expected);
      for (std::size_t i = 0; i < value.size(); ++i)
        ASSERT_NEAR(value[i], expected.at(i), 0x1p-7 * std::fabs(expected[i]) + slack)
            << name << " " << result << " " << i;
    }
    for (const auto& [result, tensor] : results(f32)) {
      const auto expected = doubles_of(file, name + "/float64/" + result);
      EXPECT_LE(norm_of(difference(doubles_of(tensor->view()), expected)), 1e-6 * norm_of(expected))
          << name << " " << result;
    }
  }
}

}  // namespace
}  // namespace fp8
