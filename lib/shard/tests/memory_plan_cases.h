// Plans of memory that differ in the memory for logits.
#pragma once

#include "fp8/shard/sharded_model.h"

namespace fp8::shard {

inline constexpr std::size_t kRest = std::size_t{70} << 30;  // bytes of everything but logits

// The plan with `bytes` for a block of logits.
inline MemoryPlan plan_with_logits(std::int64_t bytes) {
  MemoryPlan plan;
  plan.bytes = kRest + static_cast<std::size_t>(bytes);
  plan.logit_bytes = bytes;
  return plan;
}

}  // namespace fp8::shard
