/// RMSNorm on a device compared with the host's. Sums over a row have another order, so results differ by a rounding:
/// 1e-6 in f32, a step of bf16 in bf16.
#pragma once

#include "device_cases.h"
#include "fp8/ops/norm.h"

namespace fp8::ops::cases {

inline constexpr float kNormEps = 0x1p-17f;
inline double rounding(DType type) { return type == DType::f32 ? 2e-6 : 0x1p-7; }

struct NormSize {
  std::int64_t rows, columns;
};
/// Rows for a warp and for a block, of one and of several chunks, of whole and of partial groups.
inline constexpr NormSize kNormSizes[] = {{1, 1},   {3, 15},  {40, 16},   {2, 17},   {7, 33},   {4, 255}, {9, 256},
                                          {3, 520}, {2, 640}, {130, 257}, {2, 1030}, {3, 2049}, {2, 8200}};

/// Calls f(size, type, layout, name) for every combination; each size of long rows has one layout in each type.
template <class F>
void for_each_norm(F&& f) {
  int turn = 0;
  for (const NormSize size : kNormSizes)
    for (const DType type : {DType::f32, DType::bf16}) {
      ++turn;
      for (const Layout layout : kLayouts) {
        if (size.columns < 300 || layout == kLayouts[turn % 3])
          f(size, type, layout, name_of(type, size.rows, size.columns, layout));
      }
    }
}

template <class Device>
void norm_forward(Device& device) {
  for_each_norm([&](NormSize size, DType type, Layout layout, const std::string& name) {
    const Host host;
    const auto [m, n] = size;
    const Matrix x(type, m, n, layout, 1, 3), y(type, m, n, layout, 2);
    const Tensor w = make(type, {n}, random_values(n, 3)), rstd(DType::f32, {m});
    const View dx = device.put(x.view), dy = device.put(y.view), dr = device.put(rstd.view());
    device.rmsnorm_forward(dx, device.put(w.view()), kNormEps, dy, dr);
    rmsnorm_forward(host, x.view, w.view(), kNormEps, y.view, rstd.view());
    expect_same(device, dr, rstd.view(), 1e-6, name);
    expect_same(device, dy, y.view, rounding(type), name);
    expect_same(device, dx, x.view, 0, name);
    device.clear();
  });
}

template <class Device>
void add_norm_forward(Device& device) {
  for_each_norm([&](NormSize size, DType type, Layout layout, const std::string& name) {
    const Host host;
    const auto [m, n] = size;
    const Matrix x(type, m, n, layout, 1, 3), delta(type, m, n, layout, 4), sum(type, m, n, layout, 5),
        y(type, m, n, layout, 2);
    const Tensor w = make(type, {n}, random_values(n, 3)), rstd(DType::f32, {m});
    const bool in_place = m % 2 == 0;
    const View dx = device.put(x.view), ds = in_place ? dx : device.put(sum.view), dy = device.put(y.view),
               dr = device.put(rstd.view());
    device.add_rmsnorm_forward({dx, device.put(delta.view), device.put(w.view()), kNormEps, ds, dy, dr});
    const View s = in_place ? x.view : sum.view;
    add_rmsnorm_forward(host, {x.view, delta.view, w.view(), kNormEps, s, y.view, rstd.view()});
    expect_same(device, ds, s, 0, name);
    expect_same(device, dr, rstd.view(), 1e-6, name);
    expect_same(device, dy, y.view, rounding(type), name);
    device.clear();
  });
}

/// With and without the upstream gradient and the gradient of the weight, and with dx in place of dy.
template <class Device>
void norm_backward(Device& device) {
  int turn = 0;
  for_each_norm([&](NormSize size, DType type, Layout layout, const std::string& name) {
    const Host host;
    const auto [m, n] = size;
    const Matrix x(type, m, n, layout, 1, 3), dy(type, m, n, layout, 6), up(type, m, n, layout, 7),
        y(type, m, n, layout, 8);
    const Tensor w = make(type, {n}, random_values(n, 3)), rstd(DType::f32, {m}),
                 dw = make(DType::f32, {n}, random_values(n, 9));
    rmsnorm_forward(host, x.view, w.view(), kNormEps, y.view, rstd.view());
    const bool past = turn % 2 == 0, weighted = turn % 3 != 0, over_dy = turn % 5 < 2;
    ++turn;
    const View tx = device.put(x.view), tdy = device.put(dy.view), tw = device.put(w.view()),
               tr = device.put(rstd.view()), tup = past ? device.put(up.view) : View{},
               tdw = weighted ? device.put(dw.view()) : View{},
               out = over_dy ? dy.view
                     : past  ? up.view
                             : y.view,
               tout = over_dy ? tdy
                      : past  ? tup
                              : device.put(y.view);
    device.rmsnorm_backward({tdy, tx, tw, tr, tup, tout, tdw});
    rmsnorm_backward(
        host, {dy.view, x.view, w.view(), rstd.view(), past ? up.view : View{}, out, weighted ? dw.view() : View{}});
    expect_same(device, tout, out, rounding(type), name);
    if (weighted) expect_same(device, tdw, dw.view(), 2e-6, name);
    device.clear();
  });
}

/// Amaxes of the results of norm, of addition and norm, and of backward, with and without a NaN.
template <class Device>
void norm_amaxes(Device& device) {
  for (const NormSize size : {NormSize{1, 1}, {40, 16}, {7, 33}, {70, 257}, {3, 640}, {2, 2056}, {2, 9000}})
    for (const DType type : {DType::f32, DType::bf16})
      for (const int kind : {0, 1, 2}) {  // without NaN; with one; with one that is skipped
        const Host host;
        const auto [m, n] = size;
        const Tensor x = make(type, {m, n}, random_values(m * n, 1, 3)),
                     d = make(type, {m, n}, random_values(m * n, 6)), w = make(type, {n}, random_values(n, 3)),
                     rstd(DType::f32, {m}), y(type, {m, n}), dx(type, {m, n}), found = make(DType::f32, {3}, Values(3));
        if (kind > 0) write(x.view().rows(m - 1, m).columns(n - 1, n), Values{std::nan("")});
        const auto at = [&](const View& amaxes, std::int64_t i) { return Amax{amaxes.rows(i, i + 1), kind == 2}; };
        const std::string name = name_of(type, m, n, Layout::contiguous) + ", kind " + std::to_string(kind);
        const View ta = device.put(found.view()), tx = device.put(x.view()), td = device.put(d.view()),
                   tw = device.put(w.view()), tr = device.put(rstd.view()), ty = device.put(y.view()),
                   tdx = device.put(dx.view());
        const auto expect = [&](std::int64_t i, const View& on_device, const View& result) {
          expect_amax(device, at(ta, i), 0, on_device, result, name);
          expect_amax(at(found.view(), i), 0, result, name);
        };
        device.rmsnorm_forward(tx, tw, kNormEps, ty, tr, at(ta, 0));
        rmsnorm_forward(host, x.view(), w.view(), kNormEps, y.view(), rstd.view(), at(found.view(), 0));
        expect(0, ty, y.view());
        device.rmsnorm_backward({td, tx, tw, tr, {}, tdx, {}, at(ta, 1)});
        rmsnorm_backward(host, {d.view(), x.view(), w.view(), rstd.view(), {}, dx.view(), {}, at(found.view(), 1)});
        expect(1, tdx, dx.view());
        device.add_rmsnorm_forward({tx, td, tw, kNormEps, tx, ty, tr, at(ta, 2)});
        add_rmsnorm_forward(
            host, {x.view(), d.view(), w.view(), kNormEps, x.view(), y.view(), rstd.view(), at(found.view(), 2)});
        expect(2, ty, y.view());
        device.clear();
      }
}

/// The largest magnitude of a row is with each warp of a team and in each chunk of a row; in short rows it is also at
/// the first and the last lane of a warp.
template <class Device>
void norm_maxima(Device& device) {
  for (const NormSize size : {NormSize{1, 33}, {1, 640}, {1, 2056}, {1, 9000}})
    for (const DType type : {DType::f32, DType::bf16}) {
      const std::int64_t n = size.columns;
      const Tensor x = make(type, {1, n}, random_values(n, 1)), d = make(type, {1, n}, random_values(n, 6)),
                   w = make(type, {n}, Values(static_cast<std::size_t>(n), 1.0)), rstd(DType::f32, {1}),
                   y(type, {1, n}), dx(type, {1, n}), zeros = make(DType::f32, {3}, Values(3));
      const std::int64_t step = n < 9000 ? 128 : 640;
      for (std::int64_t c = 0; c < n; c += c % step == 0 ? step - 9 : 9) {  // 0, 119, 128, 247, 256, ...
        const auto plant = [&](const Tensor& to) {
          const View at = to.view().columns(c, c + 1);
          const Values before = read(at);
          write(at, Values{64.0});
          return before;
        };
        const Values of_x = plant(x), of_d = plant(d);
        const View ta = device.put(zeros.view()), tx = device.put(x.view()), td = device.put(d.view()),
                   tw = device.put(w.view()), tr = device.put(rstd.view()), ty = device.put(y.view()),
                   tdx = device.put(dx.view());
        const auto at = [&](std::int64_t i) { return Amax{ta.rows(i, i + 1), false}; };
        const std::string name = name_of(type, 1, n, Layout::contiguous) + ", column " + std::to_string(c);
        device.rmsnorm_forward(tx, tw, kNormEps, ty, tr, at(0));
        expect_amax(device, at(0), 0, ty, y.view(), name);
        device.rmsnorm_backward({td, tx, tw, tr, {}, tdx, {}, at(1)});
        expect_amax(device, at(1), 0, tdx, dx.view(), name);
        device.add_rmsnorm_forward({tx, td, tw, kNormEps, tx, ty, tr, at(2)});
        expect_amax(device, at(2), 0, ty, y.view(), name);
        write(x.view().columns(c, c + 1), of_x);
        write(d.view().columns(c, c + 1), of_d);
        device.clear();
      }
    }
}

/// Heads of a fused projection [M, heads, D], in place, and the gradient of both.
template <class Device>
void norm_of_heads(Device& device) {
  for (const std::int64_t d : {6, 64, 128})
    for (const DType type : {DType::f32, DType::bf16}) {
      const Host host;
      const std::int64_t m = 70, heads = 3;
      const Tensor fused = make(type, {m, heads + 2, d}, random_values(m * (heads + 2) * d, 1)),
                   grads = make(type, {m, heads + 2, d}, random_values(m * (heads + 2) * d, 2)),
                   w = make(type, {d}, random_values(d, 3)), rstd(DType::f32, {m, heads}), dw(DType::f32, {d}),
                   y(type, {m, heads, d});
      View x = fused.view(), dy = grads.view();
      x.shape[1] = dy.shape[1] = heads;
      const View tx = device.put(x), tdy = device.put(dy), tw = device.put(w.view()), tr = device.put(rstd.view()),
                 tdw = device.put(dw.view()), raw = device.put(x);
      rmsnorm_forward(host, x, w.view(), kNormEps, y.view(), rstd.view());
      rmsnorm_backward(host, {dy, x, w.view(), rstd.view(), {}, dy, dw.view()});
      rmsnorm_forward(host, x, w.view(), kNormEps, x, rstd.view());
      device.rmsnorm_forward(tx, tw, kNormEps, tx, tr);
      device.rmsnorm_backward({tdy, raw, tw, tr, {}, tdy, tdw});
      const std::string name = name_of(type, m * heads, d, Layout::wide);
      expect_same(device, tx, x, rounding(type), name);
      expect_same(device, tr, rstd.view(), 1e-6, name);
      expect_same(device, tdy, dy, rounding(type), name);
      expect_same(device, tdw, dw.view(), type == DType::f32 ? 2e-6 : 1e-4, name);
      device.clear();
    }
}

}  // namespace fp8::ops::cases
