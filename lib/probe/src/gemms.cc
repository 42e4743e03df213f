// Computes GEMMs of FP8 codes with gemm::Engine, as in training.
#include "fp8/probe/gemms.h"

#include <array>
#include <set>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/safetensors.h"

namespace fp8::probe {
namespace {

using dtype::DType;
using hf::SafetensorsFile;
using tensor::Tensor;

constexpr std::int64_t kMostSums = std::int64_t{1} << 28;  // largest result of one GEMM, 1 GiB
constexpr std::array kResults = {"fast", "slow", "f32"};

// The operands of one product.
struct Product {
  std::string name;
  const hf::TensorInfo *a = nullptr, *b = nullptr;
};

[[noreturn]] void fail(const SafetensorsFile& file, const std::string& name, const std::string& reason) {
  throw Error(file.path() + ": tensor \"" + excerpt(name) + "\": " + reason);
}

const hf::TensorInfo& codes(const SafetensorsFile& file, const std::string& name) {
  const hf::TensorInfo* const tensor = file.find(name);
  if (tensor == nullptr) fail(file, name, "there is no such tensor");
  const bool fp8 = tensor->format == DType::e4m3 || tensor->format == DType::e5m2;
  if (!fp8 || tensor->shape.size() != 2) fail(file, name, "codes are F8_E4M3 or F8_E5M2 with two dimensions");
  return *tensor;
}

// The products of a file, sorted by name.
std::vector<Product> products_of(const SafetensorsFile& file) {
  std::set<std::string> names;
  for (const hf::TensorInfo& tensor : file.tensors())
    if (tensor.name.ends_with("/a") || tensor.name.ends_with("/b"))
      names.insert(tensor.name.substr(0, tensor.name.size() - 2));
  if (names.empty()) throw Error(file.path() + ": no tensors NAME/a and NAME/b");
  std::vector<Product> products;
  for (const std::string& name : names) {
    const Product p{name, &codes(file, name + "/a"), &codes(file, name + "/b")};
    const std::int64_t m = p.a->shape[0], n = p.b->shape[0];
    if (p.a->shape[1] != p.b->shape[1])
      fail(file, name + "/b", "K is " + std::to_string(p.b->shape[1]) + ", " + std::to_string(p.a->shape[1]) + " in a");
    if (n > 0 && m > kMostSums / n)
      fail(file, name + "/a",
           std::to_string(m) + " x " + std::to_string(n) + " sums, " + std::to_string(kMostSums) + " at most");
    products.push_back(p);
  }
  return products;
}

// Codes decoded to bf16, the operand type of the engine.
Tensor read_codes(const SafetensorsFile& file, const hf::TensorInfo& tensor) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(tensor.elements()));
  file.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
  Tensor values(DType::bf16, {tensor.shape[0], tensor.shape[1]});
  dtype::decode_fp8(*tensor.format, bytes, std::span(values.as<dtype::Bf16>(), bytes.size()));
  return values;
}

void write_sums(const SafetensorsFile& file, const Product& product, gemm::Accumulation accumulation,
                hf::SafetensorsWriter& out) {
  const DType of_a = *product.a->format, of_b = *product.b->format;
  const Tensor left = read_codes(file, *product.a), right = read_codes(file, *product.b);
  const Tensor sums(DType::f32, {product.a->shape[0], product.b->shape[0]});
  gemm::Engine engine;
  for (const std::string result : kResults) {
    gemm::MatmulOptions options;
    options.accumulation = result == "f32" ? gemm::Accumulation::f32 : accumulation;
    options.fast_accumulation = result == "fast";
    engine.matmul({}, {left.view(), of_a, {}}, {right.view().transposed(), of_b, {}}, sums.view(), options);
    out.begin(product.name + "/" + result);
    out.write({static_cast<const std::byte*>(sums.view().data), sums.view().bytes()});
  }
}

}  // namespace

void write_gemms(const std::string& in, const std::string& out, bool force, gemm::Accumulation accumulation) {
  const SafetensorsFile file(in);
  const std::vector<Product> products = products_of(file);
  std::vector<hf::TensorSpec> specs;
  for (const Product& p : products)
    for (const std::string result : kResults)
      specs.push_back({p.name + "/" + result, DType::f32, {p.a->shape[0], p.b->shape[0]}});
  check_output(out, force, {in});
  AtomicFile target(out, force);
  hf::SafetensorsWriter writer(File::open_update(target.path()), std::move(specs), {});
  for (const Product& p : products) write_sums(file, p, accumulation, writer);
  writer.finish();
  target.commit();
}

}  // namespace fp8::probe
