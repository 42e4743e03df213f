// Computes GEMMs of FP8 codes with gemm::Engine, as in training.
#include "fp8/probe/gemms.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/dtype/convert.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/writer.h"

namespace fp8::probe {
namespace {

using dtype::DType;
using tensor::Tensor;

constexpr std::int64_t kMostSums = std::int64_t{1} << 28;  // largest result of one GEMM, 1 GiB

// HDF5 crashes or hangs on some forged files, so a child process opens the file first.
void open_elsewhere(const std::string& path) {
  constexpr unsigned kSeconds = 60;
  const pid_t child = ::fork();
  if (child < 0) throw Error(path + ": cannot start a process to open it");
  if (child == 0) {
    ::alarm(kSeconds);
    ::close(STDERR_FILENO);
    try {
      const h5::Reader file(path);
    } catch (const Error&) {
      ::_exit(0);  // the parent finds and reports the same error
    }
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw Error(path + ": cannot wait for the process that opens it");
  if (status != 0) throw Error(path + ": damaged: HDF5 does not survive opening it");
}

struct Formats {
  DType a, b;
};

std::optional<DType> fp8_format(std::string_view name) {
  if (name == "e4m3") return DType::e4m3;
  if (name == "e5m2") return DType::e5m2;
  return std::nullopt;
}

// Formats in the name of the outer group.
Formats formats_of(const h5::Reader& file, const std::string& group) {
  const std::string outer = group.substr(0, group.find('/'));
  const std::size_t bar = outer.find('_');
  const auto a = fp8_format(outer.substr(0, bar));
  const auto b = bar == std::string::npos ? std::nullopt : fp8_format(outer.substr(bar + 1));
  if (!a || !b || group == outer)
    throw Error(file.path() + ": /" + group +
                ": codes need an outer group named by their formats, such as e4m3_e4m3 or e5m2_e4m3");
  return {*a, *b};
}

const h5::Entry& codes_entry(const h5::Reader& file, const std::string& name) {
  const h5::Entry& entry = file.at(name);
  if (entry.dtype != DType::u8 || entry.shape.size() != 2)
    throw Error(file.path() + ": /" + name + ": codes are uint8 with two dimensions");
  return entry;
}

// Codes decoded to bf16, the operand type of the engine.
Tensor read_codes(const h5::Reader& file, const h5::Entry& entry, DType format) {
  const auto bytes = file.read_as<std::uint8_t>(entry.name);
  Tensor values(DType::bf16, {entry.shape[0], entry.shape[1]});
  dtype::decode_fp8(format, bytes, std::span(values.as<dtype::Bf16>(), bytes.size()));
  return values;
}

void write_group(const h5::Reader& file, const std::string& group, gemm::Accumulation accumulation, h5::Writer& out) {
  const Formats formats = formats_of(file, group);
  const h5::Entry &a = codes_entry(file, group + "/a"), &b = codes_entry(file, group + "/b");
  const std::int64_t m = a.shape[0], n = b.shape[0];
  if (a.shape[1] != b.shape[1])
    throw Error(file.path() + ": /" + group + ": K is " + std::to_string(a.shape[1]) + " in a, " +
                std::to_string(b.shape[1]) + " in b");
  if (n > 0 && m > kMostSums / n)
    throw Error(file.path() + ": /" + group + ": " + std::to_string(m) + " x " + std::to_string(n) + " sums, " +
                std::to_string(kMostSums) + " at most");
  const Tensor left = read_codes(file, a, formats.a), right = read_codes(file, b, formats.b);
  const Tensor sums(DType::f32, {m, n});
  gemm::Engine engine;
  const auto put = [&](const char* name, gemm::Accumulation how, bool fast) {
    gemm::MatmulOptions options;
    options.accumulation = how;
    options.fast_accumulation = fast;
    engine.matmul({}, {left.view(), formats.a, {}}, {right.view().transposed(), formats.b, {}}, sums.view(), options);
    const auto bytes = std::span(static_cast<const std::byte*>(sums.view().data), sums.view().bytes());
    out.dataset(group + "/" + name, DType::f32, std::array{m, n}, bytes);
  };
  put("fast", accumulation, true);
  put("slow", accumulation, false);
  put("f32", gemm::Accumulation::f32, false);
}

}  // namespace

void write_gemms(const std::string& in, const std::string& out, bool force, gemm::Accumulation accumulation) {
  open_elsewhere(in);
  const h5::Reader file(in);
  std::vector<std::string> groups;
  for (const std::string& group : file.groups())
    if (file.find(group + "/a") != nullptr || file.find(group + "/b") != nullptr) groups.push_back(group);
  if (groups.empty()) throw Error(in + ": no group has datasets a and b");
  check_output(out, force, {in});
  AtomicFile target(out, force);
  h5::Writer writer(target.path());
  for (const std::string& group : groups) write_group(file, group, accumulation, writer);
  writer.finish();
  target.commit();
}

}  // namespace fp8::probe
