/// Embedding and cross-entropy of parts of the vocabulary, as ranks of tensor parallelism have them, on a device
/// compared with the host's, and losses of several parts together.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "device_cases.h"
#include "fp8/ops/elementwise.h"

namespace fp8::ops::cases {

using Bounds = std::vector<std::int64_t>;

/// First indices of uneven parts of n >= 8, and n.
inline Bounds uneven_bounds(std::int64_t n, std::int64_t parts) {
  Bounds bounds{0};
  for (std::int64_t p = 1; p < parts; ++p) bounds.push_back(n * p * p / (parts * parts) + p);
  bounds.push_back(n);
  return bounds;
}

/// The rows of a view as a contiguous tensor.
inline Tensor copy_of(const View& v) { return make(v.dtype, {v.shape[0], v.shape[1]}, read(v)); }

/// Overwrites `to` with a view on a device that has its strides.
template <class Device>
void fetch(Device& device, const View& from, const View& to) {
  const Tensor back(to.dtype, {span_of(to)});
  device.get(from, back.view());
  View inside = to;
  inside.data = back.view().data;
  write(to, read(inside));
}

/// What ranks with parts of the vocabulary compute, one after the other: losses f32 [m], and with `backward` the
/// gradient of logits in their place.
template <class Device>
void loss_of_parts(Device& device, const View& logits, const View& targets, const Bounds& bounds, float scale,
                   bool backward, const View& losses) {
  const std::int64_t m = logits.shape[0];
  const View ids = device.put(targets);
  Values maxima(static_cast<std::size_t>(m), -std::numeric_limits<double>::infinity());
  std::vector<float> sums(static_cast<std::size_t>(2 * m));
  std::vector<View> there;
  const auto on_parts = [&](tensor::Shape shape, const auto& compute, const auto& reduce) {
    for (std::size_t p = 0; p + 1 < bounds.size(); ++p) {
      const Tensor result = make(DType::f32, shape, Values(static_cast<std::size_t>(2 * m), 7.0));
      const View out = device.put(result.view());
      compute(p, out);
      fetch(device, out, result.view());
      const Values found = read(result.view());
      for (std::size_t i = 0; i < found.size(); ++i) reduce(i, found[i]);
    }
  };
  for (std::size_t p = 0; p + 1 < bounds.size(); ++p)
    there.push_back(device.put(logits.columns(bounds[p], bounds[p + 1])));
  on_parts(
      {m}, [&](std::size_t p, const View& out) { device.logit_maxima(there[p], out); },
      [&](std::size_t i, double found) { maxima[i] = std::max(maxima[i], found); });
  const Tensor largest = make(DType::f32, {m}, maxima);
  const View shifts = device.put(largest.view());
  on_parts(
      {2, m}, [&](std::size_t p, const View& out) { device.logit_sums(there[p], ids, bounds[p], shifts, out); },
      [&](std::size_t i, double found) { sums[i] += static_cast<float>(found); });
  const Tensor total = make(DType::f32, {2, m}, Values(sums.begin(), sums.end()));
  const View all = device.put(total.view());
  for (std::size_t p = 0; p + 1 < bounds.size(); ++p) {
    const View out = device.put(losses);
    device.cross_entropy_of_part({there[p], ids, bounds[p], shifts, all, out, scale, backward});
    fetch(device, out, losses);
    fetch(device, there[p], logits.columns(bounds[p], bounds[p + 1]));
  }
}

/// Targets that are first and last tokens of parts, with the fourth row ignored.
inline Tensor targets_at(const Bounds& bounds, std::int64_t m) {
  Values targets(static_cast<std::size_t>(m));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::size_t part = i / 2 % (bounds.size() - 1);
    targets[i] = static_cast<double>(i % 2 == 0 ? bounds[part] : bounds[part + 1] - 1);
  }
  if (m > 3) targets[3] = kIgnoredTarget;
  return make(DType::i32, {m}, targets);
}

/// Each of the three steps on a device, with reduced values of the host, for parts of rows of every layout; a row is
/// ignored, and one has a NaN.
template <class Device>
void loss_of_part(Device& device) {
  for (const std::int64_t n : {1, 7, 33, 256, 1023, 8200})
    for (const DType type : {DType::f32, DType::bf16})
      for (const Layout layout : kLayouts) {
        if (n > 1000 && layout == Layout::shifted) continue;
        const Host host;
        const std::int64_t m = n < 1000 ? 6 : 4, first = 100;
        const std::string name = name_of(type, m, n, layout);
        const Matrix x(type, m, n, layout, 1, 8);
        Values targets(static_cast<std::size_t>(m), static_cast<double>(first + n - 1));
        targets[0] = static_cast<double>(first - 1);
        targets[1] = static_cast<double>(first + n);
        targets[3] = kIgnoredTarget;
        write(x.view.rows(2, 3).columns(0, 1), {-std::numeric_limits<double>::infinity()});
        const Tensor t = make(DType::i32, {m}, targets), maxima(DType::f32, {m}), sums(DType::f32, {2, m}),
                     losses(DType::f32, {m});
        const View tt = device.put(t.view()), tm = device.put(maxima.view()), ts = device.put(sums.view()),
                   tl = device.put(losses.view());
        device.logit_maxima(device.put(x.view), tm);
        logit_maxima(host, x.view, maxima.view());
        expect_same(device, tm, maxima.view(), 0, name + ", maxima");
        if (m > 4) write(x.view.rows(4, 5).columns(n / 2, n / 2 + 1), {std::numeric_limits<double>::quiet_NaN()});
        const View tx = device.put(x.view);
        for (std::int64_t i = 0; i < m; ++i) maxima.as<float>()[i] += static_cast<float>(i % 2);  // another part's
        const View larger = device.put(maxima.view());
        device.logit_sums(tx, tt, first, larger, ts);
        logit_sums(host, x.view, t.view(), first, maxima.view(), sums.view());
        expect_same(device, ts, sums.view(), 1e-6, name + ", sums");
        for (std::int64_t i = 0; i < 2 * m; ++i) sums.as<float>()[i] += 0.5f;
        const View all = device.put(sums.view());
        for (const bool backward : {false, true}) {
          device.cross_entropy_of_part({tx, tt, first, larger, all, tl, 0.125f, backward});
          cross_entropy_of_part(host,
                                {x.view, t.view(), first, maxima.view(), sums.view(), losses.view(), 0.125f, backward});
          expect_same(device, tl, losses.view(), 2e-7, name + ", losses");
          expect_same(device, tx, x.view, 0, name + (backward ? ", gradients" : ", logits"));
        }
        device.clear();
      }
}

/// Parts together, with a NaN in one of them, and losses of more rows than a block has threads.
template <class Device>
void losses_of_parts(Device& device) {
  const std::int64_t m = 7, n = 40, many = 700;
  const Bounds bounds{0, 3, 20, n};
  for (const DType type : {DType::f32, DType::bf16}) {
    const Matrix x(type, m, n, Layout::wide, 1, 8);
    write(x.view.rows(6, 7).columns(4, 5), {std::numeric_limits<double>::quiet_NaN()});
    const Tensor t = targets_at(bounds, m), losses(DType::f32, {m}), want(DType::f32, {m}), gradient = copy_of(x.view);
    loss_of_parts(device, x.view, t.view(), bounds, 0.25f, true, losses.view());
    cross_entropy(Host(), gradient.view(), t.view(), want.view(), 0.25f, true);
    expect_close(read(losses.view()), read(want.view()), 1e-6, "losses of parts");
    expect_close(read(x.view), read(gradient.view()), type == DType::f32 ? 1e-6 : 0x1p-8, "gradients of parts");
  }
  const Tensor x(DType::f32, {many, 1}), t(DType::i32, {many}), losses(DType::f32, {many}),
      maxima = make(DType::f32, {many}, random_values(many, 2)), sums(DType::f32, {2, many});
  for (std::int64_t i = 0; i < 2 * many; ++i) sums.as<float>()[i] = static_cast<float>(1 + i % 97);
  const View out = device.put(losses.view());
  device.cross_entropy_of_part({device.put(x.view()), device.put(t.view()), 0, device.put(maxima.view()),
                                device.put(sums.view()), out, 1, false});
  cross_entropy_of_part(Host(), {x.view(), t.view(), 0, maxima.view(), sums.view(), losses.view(), 1, false});
  expect_same(device, out, losses.view(), 2e-7, "many rows");
  device.clear();
}

/// Rows and gradients of a table that has tokens 11 to 19 of 29.
template <class Device>
void embedding_of_part(Device& device) {
  const VocabularyPart part{11, true};
  for (const std::int64_t n : {1, 7, 16, 33, 264})
    for (const DType type : {DType::f32, DType::bf16})
      for (const Layout layout : kLayouts) {
        const Host host;
        const std::int64_t m = 41;
        const std::string name = name_of(type, m, n, layout);
        Values ids(static_cast<std::size_t>(m));
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i % 4 == 0 ? 12 : i * i % 29);
        const Tensor tokens = make(DType::i32, {m}, ids);
        const Matrix table(DType::f32, 9, n, layout, 1), out(type, m, n, layout, 2), dout(type, m, n, layout, 3);
        const View there = device.put(tokens.view()), dtable = device.put(table.view), rows = device.put(out.view);
        device.embedding_forward(there, dtable, rows, part);
        embedding_forward(host, tokens.view(), table.view, out.view, part);
        expect_same(device, rows, out.view, 0, name);
        device.embedding_backward(there, device.put(dout.view), dtable, part);
        embedding_backward(host, tokens.view(), dout.view, table.view, part);
        expect_same(device, dtable, table.view, 0, name + ", gradient");
        device.clear();
      }
}

}  // namespace fp8::ops::cases
