// safetensors: the first and the last byte of every tensor of an accepted file can be read.
#include "fp8/hf/safetensors.h"

#include <array>

#include "fuzz.h"

FP8_FUZZ(safetensors) {
  using namespace fp8;
  const std::string path = fuzz::folder().write("x.safetensors", fuzz::text_of(data, size));
  return fuzz::judge([&] {
    const hf::SafetensorsFile file(path);
    std::uint64_t total = 0;
    for (const hf::TensorInfo& t : file.tensors()) {
      fuzz::require(file.find(t.name) == &t, "a tensor is found by its name");
      total += t.end - t.begin;
      if (t.elements() == 0) continue;
      std::array<std::byte, 1> byte{};
      file.read(t, 0, byte);
      file.read(t, t.end - t.begin - 1, byte);
    }
    fuzz::require(total <= size, "tensors are no larger than their file");
  });
}
