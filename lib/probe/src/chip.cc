// Dense peaks by the chip's name. Data sheets of consumer cards state half the FP8 rate with f32 accumulation of that
// with f16 accumulation; training uses f32, so the table has the smaller one.
#include "fp8/probe/chip.h"

#include <algorithm>
#include <array>

namespace fp8::probe {
namespace {

struct Row {
  std::string_view part;  // part of the CUDA name; the first matching row is used
  double bf16, fp8;       // TFLOP/s
  std::string_view source;
};

// Data sheets state peaks with sparsity; the table has half of them. H100: resources.nvidia.com/en-us-tensor-core/
// nvidia-tensor-core-gpu-datasheet (SXM 1979 and 3958, PCIe 1513 and 3026); H200: the same numbers as H100 SXM; B200:
// HGX B200, 4.5 and 9 PFLOP/s each; L40S 733 and 1466, L40 half of that, L4 242 and 485: their data sheets; RTX 4090:
// Ada GPU architecture paper, appendix A; A100: nvidia-a100-datasheet, 312 dense. NVIDIA has no public sheet for H20.
constexpr std::string_view kHopper = "NVIDIA H100 Tensor Core GPU data sheet, dense";

constexpr std::array kRows{
    Row{"H200", 989.4, 1978.9, "NVIDIA H200 Tensor Core GPU data sheet, dense"},
    Row{"H100 PCIe", 756.5, 1513, kHopper},
    Row{"H100", 989.4, 1978.9, kHopper},
    Row{"H20", 148, 296, "NVIDIA H20, as its sellers state it, dense"},
    Row{"B200", 2250, 4500, "NVIDIA DGX B200 data sheet, an eighth, dense"},
    Row{"L40S", 362.05, 733, "NVIDIA L40S data sheet, dense"},
    Row{"L40", 181.05, 362, "NVIDIA L40 data sheet, dense"},
    Row{"L4", 121, 242.5, "NVIDIA L4 data sheet, dense"},
    Row{"RTX 4090", 165.2, 330.3, "NVIDIA Ada GPU architecture, appendix, dense, sums in f32"},
    Row{"A100", 312, 0, "NVIDIA A100 data sheet, dense"},
};

// Other chips whose names contain one of those parts.
constexpr std::array<std::string_view, 4> kOthers{"GH200", "GB200", "H200 NVL", "H100 NVL"};

}  // namespace

std::optional<Peak> known_peak(std::string_view name) {
  const auto held = [&](std::string_view other) { return name.find(other) != std::string_view::npos; };
  if (std::any_of(kOthers.begin(), kOthers.end(), held)) return std::nullopt;
  for (const Row& row : kRows) {
    const auto at = name.find(row.part);
    if (at == std::string_view::npos) continue;
    const auto behind = at + row.part.size();
    if (behind < name.size() && name[behind] >= '0' && name[behind] <= '9') continue;  // H20 is not H200
    return Peak{row.bf16 * 1e12, row.fp8 * 1e12, std::string(row.source)};
  }
  return std::nullopt;
}

}  // namespace fp8::probe
