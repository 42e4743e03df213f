// Dense peaks by the chip's name. Data sheets of consumer cards state FP8 with sums in f32 as half of that with sums in
// f16; the smaller one is what training gets.
#include "fp8/probe/chip.h"

#include <array>

namespace fp8::probe {
namespace {

struct Row {
  std::string_view part;  // of the name; the first row that is found in it counts
  double bf16, fp8;       // TFLOP/s
  std::string_view source;
};

constexpr std::string_view kHopper = "NVIDIA H100 Tensor Core GPU data sheet, dense";
constexpr std::string_view kH200 = "NVIDIA H200 Tensor Core GPU data sheet, dense";
constexpr std::string_view kAda = "NVIDIA Ada GPU architecture, appendix, dense, sums in f32";

constexpr std::array kRows{
    Row{"GH200", 989.4, 1978.9, "NVIDIA GH200 Grace Hopper data sheet, dense"},
    Row{"H200 NVL", 835.5, 1670.5, kH200},
    Row{"H200", 989.4, 1978.9, kH200},
    Row{"H100 NVL", 835.5, 1670.5, kHopper},
    Row{"H100 PCIe", 756.4, 1513, kHopper},
    Row{"H100", 989.4, 1978.9, kHopper},
    Row{"H20", 148, 296, "NVIDIA H20 data sheet, dense"},
    Row{"B200", 2250, 4500, "NVIDIA DGX B200 data sheet, an eighth, dense"},
    Row{"L40S", 362.05, 733, "NVIDIA L40S data sheet, dense"},
    Row{"L40", 181.05, 362, "NVIDIA L40 data sheet, dense"},
    Row{"L4", 121, 242.5, "NVIDIA L4 data sheet, dense"},
    Row{"RTX 6000 Ada", 364.2, 728.5, "NVIDIA RTX 6000 Ada data sheet, dense"},
    Row{"RTX 4090", 165.2, 330.3, kAda},
    Row{"A100", 312, 0, "NVIDIA A100 data sheet, dense"},
};

}  // namespace

std::optional<Peak> known_peak(std::string_view name) {
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
