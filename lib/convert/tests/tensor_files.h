/// Files of tensors that tests of comparisons write.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "fp8/base/file.h"
#include "fp8/convert/fit.h"
#include "fp8/hf/safetensors.h"
#include "fp8_test.h"

namespace fp8::convert {

using dtype::DType;

/// A tensor of a file that a test writes.
struct Given {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  DType type = DType::f32;
};
/// Tensors by name.
using GivenSet = std::map<std::string, Given>;

/// The elements as a file has them.
inline std::vector<std::byte> bytes_of(const Given& g) {
  std::vector<std::byte> bytes;
  const auto add = [&](auto value, std::size_t skip) {
    std::array<std::byte, sizeof value> raw{};
    std::memcpy(raw.data(), &value, sizeof value);
    bytes.insert(bytes.end(), raw.begin() + static_cast<std::ptrdiff_t>(skip), raw.end());
  };
  for (const double v : g.values) {
    if (g.type == DType::f64) add(v, 0);
    if (g.type == DType::f32) add(static_cast<float>(v), 0);
    if (g.type == DType::bf16) add(static_cast<float>(v), 2);
    if (g.type == DType::i32) add(static_cast<std::int32_t>(v), 0);
  }
  return bytes;
}

/// Values that differ from element to element and from seed to seed.
inline std::vector<double> noise(std::int64_t count, double seed) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(seed + 1.7 * static_cast<double>(i * i % 1013));
  return values;
}

/// Rows as torchtitan has them: those of each head are pairs of one row of its first half and one of its second half.
inline Given interleaved(const Given& g, std::int64_t head) {
  Given out = g;
  const std::int64_t columns = g.shape[1];
  for (std::int64_t row = 0; row < g.shape[0]; ++row) {
    const std::int64_t at = row % head, from = row - at + (at % 2) * (head / 2) + at / 2;
    std::copy_n(g.values.begin() + from * columns, columns, out.values.begin() + row * columns);
  }
  return out;
}

/// Writes and compares sets of tensors.
class FitTest : public test::FolderTest {
 protected:
  std::string write(const std::string& name, const GivenSet& tensors,
                    const std::map<std::string, std::string>& metadata = {}) {
    std::vector<hf::TensorSpec> specs;
    for (const auto& [key, given] : tensors) specs.push_back({key, given.type, given.shape});
    test::write_file(at(name), "");
    hf::SafetensorsWriter writer(File::open_update(at(name)), specs, metadata);
    for (const auto& [key, given] : tensors) writer.begin(key), writer.write(bytes_of(given));
    writer.finish();
    return at(name);
  }
  static Fit compare_files(const std::string& a, const std::string& b, TensorNames names) {
    TensorSet x(a, names), y(b, names);
    split_fused(x, y);
    return fit(x, y);
  }
  Fit compare(const GivenSet& a, const GivenSet& b, TensorNames names = TensorNames::huggingface) {
    const std::string n = std::to_string(++files_);
    return compare_files(write("a" + n + ".safetensors", a), write("b" + n + ".safetensors", b), names);
  }
  // The comparison of one tensor.
  TensorFit one(const Given& a, const Given& b) { return compare({{"t", a}}, {{"t", b}}).tensors.at(0); }
  std::string suggested(const GivenSet& a, const GivenSet& b, double bound = 0) {
    std::string text;
    for (const std::string& line : suggestions(compare(a, b), bound)) text += line + "\n";
    return text;
  }

 private:
  int files_ = 0;
};

}  // namespace fp8::convert
