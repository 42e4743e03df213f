// W + scaling B A, a few rows at a time.
#include "merge_lora.h"

#include <algorithm>

#include "fp8/base/error.h"

namespace fp8::model {
namespace {

std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

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

bool has_adapter(const hf::LoraConfig& lora, const Parameter& linear) {
  return linear.role == ParameterRole::linear &&
         std::find(lora.targets.begin(), lora.targets.end(), module_of(linear.name)) != lora.targets.end();
}

MergedRows::MergedRows(const Source& source, const Parameter& linear, const hf::LoraConfig& lora)
    : weight_(source, *source.find(linear.name), dtype::DType::f32),
      rank_(lora.rank),
      cols_(linear.cols()),
      scaling_(static_cast<float>(lora.scaling())),
      a_(matrix(source, module_of(linear.name) + ".lora_A.weight")),
      b_(matrix(source, module_of(linear.name) + ".lora_B.weight")) {}

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

}  // namespace fp8::model
