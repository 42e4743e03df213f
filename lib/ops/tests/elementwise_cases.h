/// Element-wise operations, embedding, bias gradient, loss and rope on a device compared with the host's. Arithmetic on
/// one element must give the same bits; sums in another order may differ by a rounding.
#pragma once

#include <limits>

#include "device_cases.h"
#include "fp8/ops/attention.h"
#include "fp8/ops/dropout.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"

namespace fp8::ops::cases {

struct Size {
  std::int64_t rows, columns;
};
inline constexpr Size kSizes[] = {{1, 1},   {5, 7},    {3, 15},  {2, 16},   {17, 17},
                                  {31, 33}, {33, 255}, {2, 256}, {1, 2049}, {3, 4104}};
inline constexpr DType kTypes[] = {DType::f32, DType::bf16};

/// Calls f(rows, columns, type, layout, name) for every combination.
template <class F>
void for_each_size(F&& f) {
  for (const Size size : kSizes)
    for (const DType type : kTypes)
      for (const Layout layout : kLayouts)
        f(size.rows, size.columns, type, layout, name_of(type, size.rows, size.columns, layout));
}

/// Sums, also in place, and a non-finite one.
template <class Device>
void addition(Device& device) {
  for_each_size([&](std::int64_t m, std::int64_t n, DType type, Layout layout, const std::string& name) {
    const Host host;
    const Matrix a(type, m, n, layout, 1), b(type, m, n, layout, 2), out(type, m, n, layout, 3);
    const bool in_place = n % 2 == 0;
    const View to = in_place ? b.view : out.view, db = device.put(b.view), dto = in_place ? db : device.put(out.view);
    device.add(device.put(a.view), db, dto);
    add(host, a.view, b.view, to);
    expect_same(device, dto, to, 0, name);
    device.clear();
  });
}

/// Sums of one to five bf16 terms, in order.
template <class Device>
void summing_terms(Device& device) {
  for (const Size size : kSizes) {
    const Host host;
    const std::int64_t count = std::min<std::int64_t>(size.rows, 5), n = size.columns;
    const Matrix terms(DType::bf16, count, n, Layout::contiguous, 1, 1e5), out(DType::f32, 1, n, Layout::contiguous, 2);
    const View to = out.view.reshaped({n}), dout = device.put(to);
    device.sum_terms(device.put(terms.view), dout);
    sum_terms(host, terms.view, to);
    expect_same(device, dout, to, 0, name_of(DType::bf16, count, n, Layout::contiguous));
    const Values values = read(terms.view);
    for (std::int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (std::int64_t t = 0; t < count; ++t) sum += static_cast<float>(values[static_cast<std::size_t>(t * n + i)]);
      ASSERT_EQ(to.as<float>()[i], sum) << count << " terms of " << n << ", " << i;
    }
    device.clear();
  }
}

/// Sums of one to five matrices and a bias, rounded once; with too few columns, no bias.
template <class Device>
void summing_partials(Device& device) {
  for (const Size size : kSizes)
    for (const DType type : kTypes)
      for (const std::int64_t count : {1, 2, 5}) {
        const Host host;
        const auto [m, n] = size;
        const Tensor terms = make(type, {count, m, n}, random_values(count * m * n, 1, 3)),
                     bias = make(type, {n}, random_values(n, 2, 3)), out(type, {m, n});
        const View added = n == 7 || n == 256 ? View{} : bias.view(), dout = device.put(out.view());
        device.sum_partials(device.put(terms.view()), added.empty() ? View{} : device.put(added), dout);
        sum_partials(host, terms.view(), added, out.view());
        expect_same(device, dout, out.view(), 0, name_of(type, m, n, Layout::contiguous));
        device.clear();
      }
}

/// Dropout of some columns of a matrix, which begin anywhere in a group of four elements.
template <class Device>
void dropping_columns(Device& device) {
  for (const DType type : kTypes)
    for (const Layout layout : kLayouts)
      for (const std::int64_t first : {0, 3, 6, 21}) {
        const Host host;
        const Dropout drop{0.3f, 7, 11, 5, first, 45};
        const Matrix x(type, 9, 24, layout, 1);
        const View there = device.put(x.view);
        device.dropout(there, drop, there);
        dropout(host, x.view, drop, x.view);
        expect_same(device, there, x.view, 0, name_of(type, 9, 24, layout) + " from column " + std::to_string(first));
        device.clear();
      }
}

/// Dropout, also in place, of rows that do not begin at multiples of four elements.
template <class Device>
void dropping(Device& device) {
  for_each_size([&](std::int64_t m, std::int64_t n, DType type, Layout layout, const std::string& name) {
    const Host host;
    const Dropout drop{0.3f, 7, 11, 5};
    const Matrix x(type, m, n, layout, 1), out(type, m, n, layout, 2);
    const View to = n % 2 == 0 ? x.view : out.view, dx = device.put(x.view),
               dto = n % 2 == 0 ? dx : device.put(out.view);
    device.dropout(dx, drop, dto);
    dropout(host, x.view, drop, to);
    expect_same(device, dto, to, 0, name);
    device.clear();
  });
}

/// Conversion between types, of contiguous, strided and transposed rows.
template <class Device>
void copying(Device& device) {
  for_each_size([&](std::int64_t m, std::int64_t n, DType type, Layout layout, const std::string& name) {
    const Host host;
    const Matrix in(DType::f32, m, n, layout, 1, 1e5);
    in.view.as<float>()[0] = std::numeric_limits<float>::infinity();
    for (const Layout to : kLayouts) {
      const Matrix out(type, m, n, to, 2), back(DType::f32, m, n, to, 3);
      const View dout = device.put(out.view), dback = device.put(back.view);
      device.copy(device.put(in.view), dout);
      device.copy(dout, dback);
      copy(host, in.view, out.view);
      copy(host, out.view, back.view);
      expect_same(device, dout, out.view, 0, name);
      expect_same(device, dback, back.view, 0, name);
    }
    if (n <= 300) {
      const Matrix across(type, n, m, layout, 4);
      const View dacross = device.put(across.view);
      device.copy(device.put(in.view.transposed()), dacross);
      copy(host, in.view.transposed(), across.view);
      expect_same(device, dacross, across.view, 0, name + ", transposed");
    }
    device.clear();
  });
}

template <class Device>
void zeroing(Device& device) {
  for (const std::int64_t bytes : {1, 15, 16, 17, 4095, 10001}) {
    for (const std::int64_t first : {0, 16, 3}) {
      const Tensor whole(DType::u8, {bytes + 40});
      std::fill_n(whole.as<std::uint8_t>(), bytes + 40, std::uint8_t{7});
      const View all = device.put(whole.view()), part = all.rows(first, first + bytes);
      device.zero(part);
      const Tensor back(DType::u8, {bytes + 40});
      device.get(all, back.view());
      for (std::int64_t i = 0; i < bytes + 40; ++i)
        ASSERT_EQ(back.as<std::uint8_t>()[i], i >= first && i < first + bytes ? 0 : 7) << bytes << ", " << i;
      device.clear();
    }
  }
}

template <class Device>
void swiglu(Device& device) {
  for_each_size([&](std::int64_t m, std::int64_t n, DType type, Layout layout, const std::string& name) {
    const Host host;
    const Matrix joint(type, m, 2 * n, layout, 1, 100), h(type, m, n, layout, 2), dh(type, m, n, layout, 3),
        d_joint(type, m, 2 * n, layout, 4);
    const bool in_place = m % 2 == 1;
    const View tj = device.put(joint.view), th = device.put(h.view), to = in_place ? tj : device.put(d_joint.view),
               out = in_place ? joint.view : d_joint.view;
    device.swiglu_forward(tj, th);
    device.swiglu_backward(device.put(dh.view), tj, to);
    swiglu_forward(host, joint.view, h.view);
    swiglu_backward(host, dh.view, joint.view, out);
    expect_same(device, th, h.view, 0, name);
    expect_same(device, to, out, 0, name);
    device.clear();
  });
}

/// Amaxes of SwiGLU and of both gradients, with and without a NaN in gate.
template <class Device>
void swiglu_amaxes(Device& device) {
  for (const std::int64_t n : {1, 24, 300})
    for (const DType type : {DType::f32, DType::bf16})
      for (const int kind : {0, 1, 2}) {  // without NaN; with one; with one that is skipped
        const Host host;
        const std::int64_t m = 5;
        const Tensor joint = make(type, {m, 2 * n}, random_values(m * 2 * n, 1, 3)), h(type, {m, n}),
                     dh = make(type, {m, n}, random_values(m * n, 2)), found = make(DType::f32, {3}, Values(3));
        if (kind > 0) write(joint.view().rows(2, 3).columns(0, 1), Values{std::nan("")});
        const auto at = [&](const View& amaxes, std::int64_t begin, std::int64_t end) {
          return Amax{amaxes.rows(begin, end), kind == 2};
        };
        const std::string name = name_of(type, m, n, Layout::contiguous) + ", kind " + std::to_string(kind);
        const View ta = device.put(found.view()), tj = device.put(joint.view()), th = device.put(h.view());
        const Tensor apart(type, {m, 2 * n}), of_both = make(DType::f32, {1}, Values(1));
        const View t_apart = device.put(apart.view()), t_both = device.put(of_both.view());
        device.swiglu_backward(device.put(dh.view()), tj, t_apart, at(t_both, 0, 1));
        swiglu_backward(host, dh.view(), joint.view(), apart.view(), at(of_both.view(), 0, 1));
        expect_amax(device, at(t_both, 0, 1), 0, t_apart, apart.view(), name);
        expect_amax(at(of_both.view(), 0, 1), 0, apart.view(), name);
        device.swiglu_forward(tj, th, at(ta, 0, 1));
        device.swiglu_backward(device.put(dh.view()), tj, tj, at(ta, 1, 3));
        swiglu_forward(host, joint.view(), h.view(), at(found.view(), 0, 1));
        swiglu_backward(host, dh.view(), joint.view(), joint.view(), at(found.view(), 1, 3));
        expect_amax(device, at(ta, 0, 1), 0, th, h.view(), name);
        expect_amax(at(found.view(), 0, 1), 0, h.view(), name);
        const Tensor back(type, {m, 2 * n}), amaxes(DType::f32, {3});
        device.get(tj, back.view());
        device.get(ta, amaxes.view());
        for (const std::int64_t half : {0, 1})
          for (const auto& [of, result] : {std::pair{amaxes.view(), back.view()}, {found.view(), joint.view()}})
            expect_amax(at(of, 1, 3), static_cast<std::size_t>(half), result.columns(half * n, (half + 1) * n), name);
        device.clear();
      }
}

/// The largest magnitude of a row is with each warp of a block, in the columns that are read first and in those that
/// the 24 blocks of the shim's device read after these, and in the last column.
template <class Device>
void swiglu_maxima(Device& device) {
  constexpr std::int64_t kOfWarp = 256, kFirst = 24 * 8 * kOfWarp, n = kFirst + 8 * kOfWarp + 9;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor joint = make(type, {1, 2 * n}, random_values(2 * n, 1)), h(type, {1, n}),
                 dh = make(type, {1, n}, random_values(n, 2)), zeros = make(DType::f32, {3}, Values(3));
    for (const std::int64_t c : {kOfWarp + 7, kFirst - 9, kFirst, kFirst + 299, kFirst + 600, kFirst + 900,
                                 kFirst + 1200, kFirst + 1535, kFirst + 1636, kFirst + 2000, n - 1}) {
      const Values of_gate = read(joint.view().columns(c, c + 1)), of_dh = read(dh.view().columns(c, c + 1));
      write(joint.view().columns(c, c + 1), Values{32.0});
      write(dh.view().columns(c, c + 1), Values{64.0});
      const View ta = device.put(zeros.view()), tj = device.put(joint.view()), th = device.put(h.view());
      const std::string name = name_of(type, 1, n, Layout::contiguous) + ", column " + std::to_string(c);
      device.swiglu_forward(tj, th, {ta.rows(0, 1), false});
      expect_amax(device, {ta.rows(0, 1), false}, 0, th, h.view(), name);
      device.swiglu_backward(device.put(dh.view()), tj, tj, {ta.rows(1, 3), false});
      const Tensor back(type, {1, 2 * n}), amaxes(DType::f32, {3});
      device.get(tj, back.view());
      device.get(ta, amaxes.view());
      for (const std::int64_t half : {0, 1})
        expect_amax({amaxes.view().rows(1, 3), false}, static_cast<std::size_t>(half),
                    back.view().columns(half * n, (half + 1) * n), name);
      write(joint.view().columns(c, c + 1), of_gate);
      write(dh.view().columns(c, c + 1), of_dh);
      device.clear();
    }
  }
}

/// Repeated ids, in runs longer and shorter than the rows in flight, and unused rows of the table.
inline Tensor tokens_of(std::int64_t m, std::int64_t vocabulary) {
  Values ids(static_cast<std::size_t>(m));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i % 3 == 0 ? 5 : i * i % 23);
    ids[i] = static_cast<double>(id % vocabulary);
  }
  return make(DType::i32, {m}, ids);
}

template <class Device>
void embedding(Device& device) {
  for_each_size([&](std::int64_t m, std::int64_t n, DType type, Layout layout, const std::string& name) {
    const Host host;
    const std::int64_t vocabulary = 29;
    const Tensor tokens = tokens_of(m, vocabulary);
    const Matrix table(DType::f32, vocabulary, n, layout, 1), out(type, m, n, layout, 2);
    const View ids = device.put(tokens.view()), dtable = device.put(table.view), dout = device.put(out.view);
    device.embedding_forward(ids, dtable, dout);
    embedding_forward(host, tokens.view(), table.view, out.view);
    expect_same(device, dout, out.view, 0, name);
    device.embedding_backward(ids, dout, dtable);
    embedding_backward(host, tokens.view(), out.view, table.view);
    expect_same(device, dtable, table.view, 0, name);
    device.clear();
  });
}

/// More tokens than one block sorts, most of them equal.
template <class Device>
void embedding_of_many(Device& device, std::int64_t m, std::int64_t n) {
  const Host host;
  const std::int64_t vocabulary = 40;
  const Tensor tokens = tokens_of(m, vocabulary), table(DType::f32, {vocabulary, n});
  const Matrix dout(DType::bf16, m, n, Layout::contiguous, 3);
  const View dtable = device.put(table.view());
  device.embedding_backward(device.put(tokens.view()), device.put(dout.view), dtable);
  embedding_backward(host, tokens.view(), dout.view, table.view());
  expect_same(device, dtable, table.view(), 0, "many tokens");
  device.clear();
}

/// Ids outside of the table: NaN forward, ignored backward, other results unchanged.
template <class Device>
void embedding_outside(Device& device) {
  const Tensor tokens = make(DType::i32, {4}, {2, -1, 3, 0}), table = make(DType::f32, {3, 9}, random_values(27, 1)),
               out(DType::bf16, {4, 9}), dtable(DType::f32, {3, 9});
  const View ids = device.put(tokens.view()), dout = device.put(out.view()), grad = device.put(dtable.view());
  device.embedding_forward(ids, device.put(table.view()), dout);
  device.get(dout, out.view());
  const Values rows = read(out.view());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(std::isnan(rows[i]), i / 9 == 1 || i / 9 == 2) << i;
  device.embedding_backward(ids, dout, grad);
  device.get(grad, dtable.view());
  const Values added = read(dtable.view());
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(added[i], rows[27 + i]);
    EXPECT_EQ(added[9 + i], 0.0);
    EXPECT_EQ(added[18 + i], rows[i]);
  }
  device.clear();
}

template <class Device>
void bias(Device& device) {
  const Size sizes[] = {{1, 1}, {7, 3}, {64, 16}, {65, 33}, {130, 257}, {700, 24}, {2000, 5}};
  for (const Size size : sizes)
    for (const DType type : kTypes)
      for (const Layout layout : kLayouts) {
        const Host host;
        const Matrix dy(type, size.rows, size.columns, layout, 1);
        const Tensor db = make(DType::f32, {size.columns}, random_values(size.columns, 2));
        const View ddb = device.put(db.view());
        device.bias_backward(device.put(dy.view), ddb);
        bias_backward(host, dy.view, db.view());
        expect_same(device, ddb, db.view(), 2e-6, name_of(type, size.rows, size.columns, layout));
        device.clear();
      }
}

/// Losses and gradients; rows that are ignored, contain NaN, or whose largest logit is the last.
template <class Device>
void loss(Device& device) {
  const Size sizes[] = {{1, 1}, {4, 7}, {5, 33}, {5, 256}, {7, 1023}, {3, 8200}, {1, 20001}};
  for (const Size size : sizes)
    for (const DType type : kTypes)
      for (const Layout layout : kLayouts) {
        if (size.columns > 100 && layout == (type == DType::f32 ? Layout::contiguous : Layout::wide)) continue;
        if (size.columns > 1000 && layout == Layout::shifted) continue;
        const Host host;
        const auto [m, n] = size;
        const Matrix x(type, m, n, layout, 1, 8);
        Values targets(static_cast<std::size_t>(m));
        for (std::size_t i = 0; i < targets.size(); ++i)
          targets[i] = i == 3 ? kIgnoredTarget : static_cast<double>((i * 7919 + 5) % static_cast<std::size_t>(n));
        targets[0] = static_cast<double>(n - 1);
        if (m > 4) write(x.view.rows(4, 5).columns(n / 2, n / 2 + 1), {std::numeric_limits<double>::quiet_NaN()});
        if (m > 2) write(x.view.rows(2, 3).columns(0, 1), {-std::numeric_limits<double>::infinity()});
        const Tensor t = make(DType::i32, {m}, targets), losses(DType::f32, {m});
        const std::string name = name_of(type, m, n, layout);
        const View tx = device.put(x.view), tt = device.put(t.view()), tl = device.put(losses.view());
        device.cross_entropy(tx, tt, tl, 0.125f, false);
        cross_entropy(host, x.view, t.view(), losses.view(), 0.125f, false);
        expect_same(device, tx, x.view, 0, name);
        expect_same(device, tl, losses.view(), 2e-6, name);
        device.cross_entropy(tx, tt, tl, 0.125f, true);
        cross_entropy(host, x.view, t.view(), losses.view(), 0.125f, true);
        expect_same(device, tl, losses.view(), 2e-6, name);
        expect_same(device, tx, x.view, type == DType::f32 ? 1e-6 : 0x1p-8, name);
        device.clear();
      }
}

/// A target outside of the vocabulary gives NaN in its row only.
template <class Device>
void loss_outside(Device& device) {
  const std::int64_t m = 3, n = 40;
  const Matrix x(DType::bf16, m, n, Layout::contiguous, 1);
  const Tensor t = make(DType::i32, {m}, {1, 40, 2}), losses(DType::f32, {m});
  const View tx = device.put(x.view), tl = device.put(losses.view());
  device.cross_entropy(tx, device.put(t.view()), tl, 1.0f, true);
  device.get(tx, x.whole.view());
  device.get(tl, losses.view());
  const Values gradient = read(x.view), got = read(losses.view());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(std::isnan(got[i]), i == 1);
  for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(std::isnan(gradient[i]), i / 40 == 1);
  device.clear();
}

/// Tables, and the rotation and its inverse of heads in a wider projection. A GPU's cosine in f64 may differ in its
/// last bit, which may change a rounding to f32.
template <class Device>
void rope_of_heads(Device& device) {
  for (const std::int64_t d : {2, 10, 64, 128, 1026})
    for (const DType type : kTypes) {
      const Host host;
      const std::int64_t batch = 2, positions = d > 1000 ? 3 : 37, heads = 3, half = d / 2;
      std::vector<float> frequencies(static_cast<std::size_t>(half));
      for (std::size_t i = 0; i < frequencies.size(); ++i)
        frequencies[i] = std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(half));
      const Tensor cos(DType::f32, {positions, half}), sin(DType::f32, {positions, half}),
          x = make(type, {batch, positions, heads + 1, d}, random_values(batch * positions * (heads + 1) * d, 1));
      const View tc = device.put(cos.view()), ts = device.put(sin.view());
      device.rope_tables(frequencies, tc, ts);
      rope_tables(host, frequencies, cos.view(), sin.view());
      expect_same(device, tc, cos.view(), 1e-7, "cos");
      expect_same(device, ts, sin.view(), 1e-7, "sin");
      const View c = device.put(cos.view()), s = device.put(sin.view());  // the same bits for the rotation
      View part = x.view();
      part.shape[2] = heads;
      const View tx = device.put(part);
      for (const bool inverse : {false, true}) {
        device.rope(tx, c, s, inverse);
        rope(host, part, cos.view(), sin.view(), inverse);
        expect_same(device, tx, part, 0, name_of(type, positions, d, Layout::wide));
      }
      device.clear();
    }
}

}  // namespace fp8::ops::cases
