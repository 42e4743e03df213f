/// Attention on a device: takes its scratch, in a dry context too, and chooses what runs.
#pragma once

#include "fp8/ops/attention.h"

namespace fp8::ops {

/// See attention_forward.
void attention_forward_on_device(const Context& ctx, const View& q, const View& k, const View& v, float scale,
                                 const Documents& documents, const View& out, const View& lse);

/// See attention_backward.
void attention_backward_on_device(const Context& ctx, const View& q, const View& k, const View& v, const View& out,
                                  const View& lse, const View& dout, float scale, const Documents& documents,
                                  const View& dq, const View& dk, const View& dv);

}  // namespace fp8::ops
