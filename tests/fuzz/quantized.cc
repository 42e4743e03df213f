// Folders with FP8 weights: the first line of the input is config.json, the rest model.safetensors. The codes of an
// accepted folder have as many scales as their shape says, and all of them can be read.
#include <vector>

#include "fp8/hf/quantization.h"
#include "fuzz.h"

FP8_FUZZ(quantized) {
  using namespace fp8;
  const std::string_view text = fuzz::text_of(data, size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  fuzz::folder().write("quantized/config.json", text.substr(0, line));
  fuzz::folder().write("quantized/model.safetensors", text.substr(std::min(line + 1, text.size())));
  return fuzz::judge([&] {
    const hf::Folder folder(fuzz::folder().at("quantized"));
    const hf::FolderTensors tensors = hf::tensors_of(folder);
    std::size_t scales = 0;
    for (const auto& [name, codes] : tensors.codes) {
      fuzz::require(codes.weight->info->name == name && codes.weight->info->shape.size() == 2, "codes are a matrix");
      std::size_t count = 1;
      for (const std::int64_t extent : codes.scales_shape) count *= static_cast<std::size_t>(extent);
      fuzz::require(hf::read_scales(folder, codes).size() == count, "a checkpoint has the same number of scales");
      std::vector<std::byte> row(static_cast<std::size_t>(codes.weight->info->shape[1]));
      folder.read_rows(*codes.weight, codes.weight->info->shape[0] - 1, 1, row);
      ++scales;
    }
    fuzz::require(tensors.weights.size() + scales + tensors.activation_scales == folder.tensors().size(),
                  "every tensor is a weight, scales of codes, or scales of activations");
  });
}
