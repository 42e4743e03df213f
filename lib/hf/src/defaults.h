/// Values of keys that a config.json lacks. Private to this crate.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fp8/hf/config.h"

namespace fp8::hf {

/// A family's defaults for keys that config.json lacks, those of transformers' configuration class. Zero: the value is
/// derived from other keys, or the family has no experts.
struct Defaults {
  Family family;
  std::string_view name;
  std::int64_t vocab, hidden, intermediate, layers, heads, key_value_heads, head_dim, positions;
  double rms_norm_eps = 1e-6, rope_theta = 10000;
  std::int64_t experts = 0, experts_per_token = 0, expert_intermediate = 0;
};

/// Defaults of keys of sliding windows, in every family that reads them but Mixtral, which has no window by default.
inline constexpr std::int64_t kSlidingWindow = 4096, kMaxWindowLayers = 28;

/// Entries of `layer_types`.
inline constexpr const char *kFullAttention = "full_attention", *kSlidingAttention = "sliding_attention";

/// All families.
inline constexpr std::array<Defaults, 6> kFamilies = {{
    {Family::llama, "llama", 32000, 4096, 11008, 32, 32, 0, 0, 2048},
    {Family::mistral, "mistral", 32000, 4096, 14336, 32, 32, 8, 0, 131072},
    {Family::qwen2, "qwen2", 151936, 4096, 22016, 32, 32, 32, 0, 32768},
    {Family::qwen3, "qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768},
    {Family::mixtral, "mixtral", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-5, 1e6, 8, 2},
    {Family::qwen3_moe, "qwen3_moe", 151936, 2048, 6144, 24, 32, 4, 0, 32768, 1e-6, 10000, 128, 8, 768},
}};

}  // namespace fp8::hf
