// W + scaling B A, a few rows at a time.
#include "merge_lora.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"

namespace fp8::convert {
namespace {

std::string module_of_weight(const std::string& name) { return name.substr(0, name.rfind('.')); }

// A whole adapter matrix.
std::vector<float> matrix(const Source& source, const std::string& name) {
  const SourceTensor* tensor = source.find(name);
  if (tensor == nullptr) throw Error(source.path() + ": " + name + ": missing");
  std::vector<float> values(static_cast<std::size_t>(tensor->shape[0] * tensor->shape[1]));
  RowReader(source, *tensor, dtype::DType::f32)
      .read(0, tensor->shape[0], std::as_writable_bytes(std::span<float>(values)));
  return values;
}

}  // namespace

bool has_adapter(const Source& source, const model::Parameter& linear) {
  return linear.role == model::ParameterRole::linear &&
         source.find(module_of_weight(linear.name) + ".lora_A.weight") != nullptr;
}

MergedRows::MergedRows(const Source& source, const model::Parameter& linear, const hf::LoraConfig& lora)
    : weight_(source, *source.find(linear.name), dtype::DType::f32),
      rank_(lora.rank),
      cols_(linear.cols()),
      scaling_(static_cast<float>(lora.scaling())),
      a_(matrix(source, module_of_weight(linear.name) + ".lora_A.weight")),
      b_(matrix(source, module_of_weight(linear.name) + ".lora_B.weight")) {}

void MergedRows::read(std::int64_t begin, std::int64_t end, std::span<float> out) {
  weight_.read(begin, end, std::as_writable_bytes(out));
#pragma omp parallel
  {
    std::vector<float> sums(static_cast<std::size_t>(cols_));
#pragma omp for
    for (std::int64_t row = begin; row < end; ++row) {
      std::fill(sums.begin(), sums.end(), 0.0F);
      float* const to = out.data() + (row - begin) * cols_;
      for (std::int64_t r = 0; r < rank_; ++r) {
        const float factor = b_[static_cast<std::size_t>(row * rank_ + r)];
        const float* const from = a_.data() + r * cols_;
#pragma omp simd
        for (std::int64_t c = 0; c < cols_; ++c) sums[static_cast<std::size_t>(c)] += factor * from[c];
      }
#pragma omp simd
      for (std::int64_t c = 0; c < cols_; ++c) to[c] += scaling_ * sums[static_cast<std::size_t>(c)];
    }
  }
}

double MergedRows::change() const {
  // |B A|^2 is the sum over r, q of (column r of B * column q of B) (row r of A * row q of A).
  const auto dot = [](const float* x, const float* y, std::size_t count, std::size_t stride) {
    double sum = 0;
    for (std::size_t i = 0; i < count * stride; i += stride)
      sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    return sum;
  };
  const auto rank = static_cast<std::size_t>(rank_), cols = static_cast<std::size_t>(cols_);
  double sum = 0;
  for (std::size_t r = 0; r < rank; ++r)
    for (std::size_t q = 0; q < rank; ++q)
      sum += dot(b_.data() + r, b_.data() + q, b_.size() / rank, rank) *
             dot(a_.data() + r * cols, a_.data() + q * cols, cols, 1);
  return static_cast<double>(scaling_) * std::sqrt(std::max(sum, 0.0));
}

}  // namespace fp8::convert
