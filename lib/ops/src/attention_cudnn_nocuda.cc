// Stand-ins for builds without CUDA: no context on a device exists there.
#include "attention_fused.h"
#include "fp8/base/error.h"

namespace fp8::ops {
namespace {

constexpr const char* kNone = "attention: this build has no CUDA";

}  // namespace

bool fused_attention_forward(const Context&, const View&, const View&, const View&, float, const Documents&,
                             const View&, const View&) {
  return false;
}

bool fused_attention_backward(const Context&, const View&, const View&, const View&, const View&, const View&,
                              const View&, float, const Documents&, const View&, const View&, const View&) {
  return false;
}

std::int64_t fused_plans_for(const FusedAttention&, int, const std::string&) { throw Error(kNone); }

}  // namespace fp8::ops
