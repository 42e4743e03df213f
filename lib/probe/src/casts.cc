// Casts matrices of a file with the functions that training uses, and lays their transforms out with tokens adjacent.
#include "fp8/probe/casts.h"

#include <array>
#include <set>
#include <string>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/round.h"
#include "fp8/base/text.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/safetensors.h"
#include "fp8/quant/fp4.h"

namespace fp8::probe {
namespace {

using dtype::DType;
using hf::SafetensorsFile;
using quant::ContractionAxis;
using quant::kFp4Block;
using tensor::Tensor;

[[noreturn]] void fail(const SafetensorsFile& file, const std::string& name, const std::string& reason) {
  throw Error(file.path() + ": tensor \"" + excerpt(name) + "\": " + reason);
}

using Names = std::set<std::string>;

// The names NAME of tensors NAME/x and NAME/w.
Names names_in(const SafetensorsFile& file) {
  Names names;
  for (const hf::TensorInfo& tensor : file.tensors())
    if (tensor.name.ends_with("/x") || tensor.name.ends_with("/w"))
      names.insert(tensor.name.substr(0, tensor.name.size() - 2));
  if (names.empty()) throw Error(file.path() + ": no tensors NAME/x or NAME/w");
  return names;
}

Tensor read(const SafetensorsFile& file, const hf::TensorInfo& info) {
  Tensor t(*info.format, {info.shape[0], info.shape[1]});
  file.read(info, 0, {static_cast<std::byte*>(t.view().data), t.view().bytes()});
  return t;
}

// A matrix to cast, or nothing if the file has none of this name.
std::optional<Tensor> matrix(const SafetensorsFile& file, const std::string& name) {
  const hf::TensorInfo* const info = file.find(name);
  if (info == nullptr) return std::nullopt;
  const bool real = info->format == DType::bf16 || info->format == DType::f32;
  if (!real || info->shape.size() != 2) fail(file, name, "expected BF16 or F32 with two dimensions");
  if (info->shape[1] % kFp4Block != 0)
    fail(file, name, "its last dimension, " + std::to_string(info->shape[1]) + ", is no multiple of 16");
  return read(file, *info);
}

// Random bits of shape [rows, cols], or nothing if the file has none of this name.
std::optional<Tensor> bits(const SafetensorsFile& file, const std::string& name, std::int64_t rows, std::int64_t cols) {
  const hf::TensorInfo* const info = file.find(name);
  if (info == nullptr) return std::nullopt;
  if (info->format != DType::u8 || info->shape != std::vector<std::int64_t>{rows, cols})
    fail(file, name, "expected U8 of shape [" + std::to_string(rows) + ", " + std::to_string(cols) + "]");
  return read(file, *info);
}

// A contiguous copy of a matrix transposed.
template <class T>
Tensor transposed(const Tensor& from) {
  const std::int64_t rows = from.view().shape[0], cols = from.view().shape[1];
  Tensor to(from.view().dtype, {cols, rows});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) to.as<T>()[c * rows + r] = from.as<T>()[r * cols + c];
  return to;
}

float amax_of(const Tensor& x) {
  Tensor amax(DType::f32, {1});
  quant::amax({}, x.view(), quant::Granularity::tensor, ContractionAxis::last, amax.view());
  return *amax.as<float>();
}

struct Result {
  std::string name;
  Tensor value;
};
using Results = std::vector<Result>;

void add_number(Results& out, const std::string& name, float number) {
  Tensor t(DType::f32, {1});
  *t.as<float>() = number;
  out.push_back({name, std::move(t)});
}

// Codes and scales of x.
std::array<Tensor, 2> cast(const Tensor& x, const quant::Fp4Cast& how) {
  const std::int64_t rows = x.view().shape[0], cols = x.view().shape[1];
  const auto scales = quant::fp4_scales(rows, cols, how.contract, how.square);
  std::array<Tensor, 2> out{Tensor(DType::u8, {rows, cols}), Tensor(DType::u8, {scales[0], scales[1]})};
  quant::cast_to_fp4({}, x.view(), how, out[0].view(), out[1].view());
  return out;
}

void add_rows(const SafetensorsFile& file, const std::string& name, const Tensor& x, Results& out) {
  quant::Fp4Cast how{.amax = amax_of(x)};
  add_number(out, name + "/amax", how.amax);
  auto [codes, scales] = cast(x, how);
  out.push_back({name + "/row_codes", std::move(codes)});
  out.push_back({name + "/row_scales", std::move(scales)});
  const std::optional<Tensor> random = bits(file, name + "/bits", x.view().shape[0], x.view().shape[1]);
  if (!random) return;
  how.random = random->view();
  out.push_back({name + "/sr_codes", std::move(cast(x, how)[0])});
}

void add_columns(const SafetensorsFile& file, const std::string& name, const Tensor& x, Results& out) {
  const std::int64_t cols = x.view().shape[1], tokens = round_up(x.view().shape[0], kFp4Block);
  const Tensor rotated(DType::bf16, {tokens, cols});
  quant::hadamard_transform({}, x.view(), rotated.view());
  quant::Fp4Cast how{.contract = ContractionAxis::first, .amax = amax_of(rotated)};
  out.push_back({name + "/rht", transposed<dtype::Bf16>(rotated)});
  add_number(out, name + "/rht_amax", how.amax);
  const auto [codes, scales] = cast(rotated, how);
  out.push_back({name + "/col_codes", transposed<std::uint8_t>(codes)});
  out.push_back({name + "/col_scales", transposed<std::uint8_t>(scales)});
  const std::optional<Tensor> random = bits(file, name + "/col_bits", cols, tokens);
  if (!random) return;
  const Tensor by_row = transposed<std::uint8_t>(*random);
  how.random = by_row.view();
  out.push_back({name + "/sr_col_codes", transposed<std::uint8_t>(cast(rotated, how)[0])});
}

void add_weight(const std::string& name, const Tensor& w, Results& out) {
  const quant::Fp4Cast how{.square = true, .amax = amax_of(w)};
  add_number(out, name + "/weight_amax", how.amax);
  auto [codes, scales] = cast(w, how);
  out.push_back({name + "/weight_codes", std::move(codes)});
  out.push_back({name + "/weight_scales", std::move(scales)});
}

hf::TensorSpec spec_of(const Result& result) {
  const tensor::View& v = result.value.view();
  return {result.name, v.dtype, std::vector<std::int64_t>(v.shape.begin(), v.shape.begin() + v.rank)};
}

}  // namespace

void write_casts(const std::string& in, const std::string& out, bool force) {
  const SafetensorsFile file(in);
  Results results;
  for (const std::string& name : names_in(file)) {
    if (const auto x = matrix(file, name + "/x")) {
      add_rows(file, name, *x, results);
      add_columns(file, name, *x, results);
    }
    if (const auto w = matrix(file, name + "/w")) add_weight(name, *w, results);
  }
  check_output(out, force, {in});
  AtomicFile target(out, force);
  std::vector<hf::TensorSpec> specs;
  for (const Result& r : results) specs.push_back(spec_of(r));
  hf::SafetensorsWriter writer(File::open_update(target.path()), std::move(specs), {});
  for (const Result& r : results) {
    writer.begin(r.name);
    writer.write({static_cast<const std::byte*>(r.value.view().data), r.value.view().bytes()});
  }
  writer.finish();
  target.commit();
}

}  // namespace fp8::probe
