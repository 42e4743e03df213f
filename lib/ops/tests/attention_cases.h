/// Attention on a device compared with the host's; both sum in f32, in different orders.
#pragma once

#include "device_cases.h"
#include "fp8/ops/attention.h"

namespace fp8::ops::cases {

struct AttentionSize {
  std::int64_t batch, positions, heads, groups, dim;
};
/// Full, partial and single tiles; heads of one, two and four pieces; groups of one and more.
inline constexpr AttentionSize kAttentionSizes[] = {{1, 1, 1, 1, 1},     {2, 17, 2, 1, 6},   {1, 64, 1, 1, 64},
                                                    {1, 65, 2, 2, 72},   {2, 130, 4, 2, 16}, {1, 200, 3, 1, 8},
                                                    {1, 100, 2, 1, 128}, {1, 70, 1, 1, 200}, {1, 66, 2, 1, 256}};

/// q, k and v in one projection [B, T, H + 2 G, D], as in a model, or shifted by an element, so that nothing is
/// aligned.
struct Projection {
  Tensor whole;
  View q, k, v;
  Projection(DType type, const AttentionSize& s, bool aligned, unsigned seed) {
    const std::int64_t all = s.heads + 2 * s.groups, size = s.batch * s.positions * all * s.dim;
    whole = make(type, {size + 1}, random_values(size + 1, seed, 2));
    const std::int64_t first = aligned ? 0 : 1;
    const View joint = whole.view().rows(first, first + size).reshaped({s.batch, s.positions, all, s.dim});
    q = part(joint, 0, s.heads);
    k = part(joint, s.heads, s.groups);
    v = part(joint, s.heads + s.groups, s.groups);
  }
  static View part(View joint, std::int64_t first, std::int64_t count) {
    joint.data = static_cast<std::byte*>(joint.data) +
                 first * joint.stride[2] * static_cast<std::int64_t>(dtype::size_of(joint.dtype));
    joint.shape[2] = count;
    return joint;
  }
};

/// Documents that begin within tiles and at their edges, including one of a single token.
inline Tensor starts_of(const AttentionSize& s) {
  Values at;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.positions; ++t)
      at.push_back(static_cast<double>(t < 5 ? 0 : t == 5 ? 5 : t < 64 ? 6 : t < 128 + b ? 64 : 128 + b));
  return make(DType::i32, {s.batch, s.positions}, at);
}

/// One size: out, lse and all gradients, which overwrite q, k and v where `in_place`.
template <class Device>
void attend(Device& device, const AttentionSize& s, DType type, bool documents, bool aligned, bool in_place) {
  const Host host;
  const Projection x(type, s, aligned, 1), grads(type, s, aligned, 2);
  const Tensor out(type, {s.batch, s.positions, s.heads, s.dim}), lse(DType::f32, {s.batch, s.heads, s.positions}),
      dout = make(type, {s.batch, s.positions, s.heads, s.dim}, random_values(out.view().size(), 3)),
      starts = starts_of(s);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
  const Documents here{documents ? starts.view() : View{}}, there{documents ? device.put(starts.view()) : View{}};
  const View q = device.put(x.q), k = device.put(x.k), v = device.put(x.v), to = device.put(out.view()),
             sums = device.put(lse.view());
  device.attention_forward({q, k, v, scale, there, to, sums});
  attention_forward(host, {x.q, x.k, x.v, scale, here, out.view(), lse.view()});
  const std::string name = name_of(type, s.positions, s.dim, aligned ? Layout::contiguous : Layout::shifted) +
                           (documents ? ", documents" : "") + (in_place ? ", in place" : "");
  const double close = type == DType::f32 ? 2e-5 : 0x1p-6;
  expect_same(device, to, out.view(), close, name + ": out");
  expect_same(device, sums, lse.view(), type == DType::f32 ? 1e-6 : 1e-3, name + ": lse");
  const View from = device.put(out.view()), kept = device.put(lse.view());  // the same bits for the gradients
  const View tq = in_place ? q : device.put(grads.q), tk = in_place ? k : device.put(grads.k),
             tv = in_place ? v : device.put(grads.v);
  device.attention_backward({q, k, v, from, kept, device.put(dout.view()), scale, there, tq, tk, tv});
  const Projection before(type, s, aligned, in_place ? 1 : 2), after(type, s, aligned, 2);
  attention_backward(host,
                     {x.q, x.k, x.v, out.view(), lse.view(), dout.view(), scale, here, after.q, after.k, after.v});
  expect_same_inside(device, tq, after.q, before.q, close, name + ": dq");
  expect_same_inside(device, tk, after.k, before.k, close, name + ": dk");
  expect_same_inside(device, tv, after.v, before.v, close, name + ": dv");
  device.clear();
}

/// All sizes, alternating documents, alignment and in-place gradients; unless `every_type`, with alternating types.
template <class Device>
void attention(Device& device, bool every_type = true) {
  int turn = 0;
  for (const AttentionSize& s : kAttentionSizes)
    for (const DType type : {DType::f32, DType::bf16}) {
      if (!every_type && (turn % 4 == 0 || turn % 4 == 3)) {
        ++turn;
        continue;
      }
      attend(device, s, type, turn % 2 == 1, turn % 3 != 0, turn % 4 >= 2);
      ++turn;
    }
}

}  // namespace fp8::ops::cases
