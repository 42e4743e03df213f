/// Cases of mixtures of experts on a device; see device_cases.h.
#pragma once

#include "device_cases.h"
#include "route_problem.h"

namespace fp8::ops::cases {

/// Problems for kernels: those of the host, and more experts and choices than a block has threads and shared memory.
inline std::vector<RouteProblem> kernel_problems() {
  std::vector<RouteProblem> all = route_problems();
  all.push_back({.m = 70, .e = 300, .k = 40, .lengths = {35, 20}});
  return all;
}

/// Routes on the host.
inline RouteTensors routed_on_host(const RouteProblem& p, const Values& logits) {
  const Host host;
  RouteTensors r(p.m, p.e, p.k);
  const Tensor x = make(DType::f32, {p.m, p.e}, logits), lengths = p.lengths_tensor();
  route_forward(host, x.view(), {p.normalize, p.length(), lengths.view()}, r.routes());
  return r;
}

/// Copies of routes on a device.
template <class Device>
Routes put_routes(Device& device, const RouteTensors& r) {
  return {device.put(r.probabilities.view()), device.put(r.log_sums.view()), device.put(r.experts.view()),
          device.put(r.weights.view()),       device.put(r.rows.view()),     device.put(r.tokens.view()),
          device.put(r.counts.view())};
}

/// Expects equal integers.
template <class Device>
void expect_integers(Device& device, const View& on_device, const View& host, const std::string& what) {
  const Tensor back = RouteTensors::filled(DType::i32, {host.size()});
  device.get(on_device, back.view());
  EXPECT_EQ(integers(back.view()), integers(host)) << what;
}

/// Expects the routes of a device to be those of the host.
template <class Device>
void expect_routes(Device& device, const Routes& got, const RouteTensors& want, double tolerance,
                   const std::string& what) {
  expect_integers(device, got.experts, want.experts.view(), what + ", experts");
  expect_integers(device, got.rows, want.rows.view(), what + ", rows");
  expect_integers(device, got.tokens, want.tokens.view(), what + ", tokens");
  expect_integers(device, got.counts, want.counts.view(), what + ", counts");
  expect_same(device, got.probabilities, want.probabilities.view(), tolerance, what + ", probabilities");
  expect_same(device, got.weights, want.weights.view(), tolerance, what + ", weights");
  expect_same(device, got.log_sums, want.log_sums.view(), 1e-6, what + ", logarithms of sums");
}

/// Routes of all problems, and of logits that are not numbers, whose probabilities may differ by `tolerance`.
template <class Device>
void routing(Device& device, double tolerance) {
  for (const RouteProblem& p : kernel_problems()) {
    Values logits = p.logits();
    for (const bool bad : {false, true}) {
      if (bad) logits[logits.size() / 2] = std::nan("");
      const RouteTensors want = routed_on_host(p, logits);
      const Tensor x = make(DType::f32, {p.m, p.e}, logits), lengths = p.lengths_tensor();
      const Routes got = put_routes(device, RouteTensors(p.m, p.e, p.k));
      device.route_forward(device.put(x.view()),
                           {p.normalize, p.length(), p.lengths.empty() ? View{} : device.put(lengths.view())}, got);
      expect_routes(device, got, want, tolerance, p.name() + (bad ? ", NaN" : ""));
      device.clear();
    }
  }
}

/// Routes of some of the tokens, which begin in the middle of a sequence and end in another.
template <class Device>
void routing_of_part(Device& device, double tolerance) {
  for (const RouteProblem& p : kernel_problems()) {
    if (p.m < 8) continue;
    const std::int64_t first = p.m / 3, m = p.m / 2;
    const Tensor all = make(DType::f32, {p.m, p.e}, p.logits()), lengths = p.lengths_tensor();
    const View own = all.view().rows(first, first + m);
    const RouteTensors want(m, p.e, p.k);
    route_forward(Host(), own, {p.normalize, p.length(), lengths.view(), first}, want.routes());
    const Routes got = put_routes(device, RouteTensors(m, p.e, p.k));
    device.route_forward(device.put(own),
                         {p.normalize, p.length(), p.lengths.empty() ? View{} : device.put(lengths.view()), first},
                         got);
    expect_routes(device, got, want, tolerance, p.name() + ", part");
    device.clear();
  }
}

/// Sums over tokens.
template <class Device>
void route_sums(Device& device) {
  for (const RouteProblem& p : kernel_problems()) {
    const RouteTensors routed = routed_on_host(p, p.logits());
    const Tensor sums(DType::f64, {p.e + 2}), back(DType::f64, {p.e + 2});
    std::fill(sums.view().as<double>(), sums.view().as<double>() + p.e + 2, 0.5);
    const View on_device = device.put(sums.view());
    add_route_sums(Host(), routed.routes(), sums.view());
    device.add_route_sums(put_routes(device, routed), on_device);
    device.get(on_device, back.view());
    for (std::int64_t c = 0; c < p.e + 2; ++c) {
      const double got = back.view().as<double>()[c], want = sums.view().as<double>()[c];
      EXPECT_NEAR(got, want, 1e-12 * want) << p.name() << ", sum " << c;
    }
    device.clear();
  }
}

/// Gradients of logits.
template <class Device>
void route_gradients(Device& device, double tolerance) {
  for (const RouteProblem& p : kernel_problems()) {
    const RouteTensors routed = routed_on_host(p, p.logits());
    const Tensor dweights = make(DType::f32, {p.m, p.k}, random_values(p.m * p.k, 5)),
                 aux = make(DType::f32, {p.e}, random_values(p.e, 6));
    for (const bool with_aux : {false, true}) {
      const Tensor want = RouteTensors::filled(DType::f32, {p.m, p.e});
      const View got = device.put(want.view());
      route_backward(Host(), dweights.view(), routed.routes(), p.normalize, {with_aux ? aux.view() : View{}, 0.25f},
                     want.view());
      device.route_backward(device.put(dweights.view()), put_routes(device, routed), p.normalize,
                            {with_aux ? device.put(aux.view()) : View{}, 0.25f}, got);
      expect_same(device, got, want.view(), tolerance, p.name() + (with_aux ? ", aux" : ""));
      device.clear();
    }
  }
}

/// Rows of experts: copies, sums and their gradients in one type and width.
template <class Device>
void rows_of_experts(Device& device, const RouteProblem& p, DType type, std::int64_t c, double tolerance) {
  const std::string name = p.name() + ", " + name_of(type, p.m, c, Layout::contiguous);
  const RouteTensors routed = routed_on_host(p, p.logits());
  const Host host;
  const Tensor x = make(type, {p.m, c}, random_values(p.m * c, 3)),
               y = make(type, {p.k * p.m, c}, random_values(p.k * p.m * c, 4)),
               addend = make(DType::f32, {p.m, c}, random_values(p.m * c, 5)),
               out = RouteTensors::filled(type, {p.m, c}), rows = RouteTensors::filled(type, {p.k * p.m, c}),
               dw = RouteTensors::filled(DType::f32, {p.m, p.k});
  const Routes there = put_routes(device, routed);
  const View dx = device.put(x.view()), dy = device.put(y.view()), dout = device.put(out.view()),
             drows = device.put(rows.view()), ddw = device.put(dw.view());
  gather_rows(host, x.view(), routed.routes().tokens, rows.view());
  device.gather_rows(dx, there.tokens, drows);
  expect_same(device, drows, rows.view(), 0, name + ", gathered");
  combine_rows(host, y.view(), routed.routes(), out.view());
  device.combine_rows(dy, there, dout);
  expect_same(device, dout, out.view(), tolerance, name + ", combined");
  sum_rows(host, y.view(), routed.routes(), addend.view(), out.view());
  device.sum_rows(dy, there, device.put(addend.view()), dout);
  expect_same(device, dout, out.view(), tolerance, name + ", added");
  combine_rows_backward(host, x.view(), y.view(), routed.routes(), y.view(), dw.view());
  device.combine_rows_backward(dx, dy, there, dy, ddw);
  expect_same(device, dy, y.view(), tolerance, name + ", gradient of rows");
  expect_same(device, ddw, dw.view(), 1e-5, name + ", gradient of weights");
  device.clear();
}

/// Rows of all problems, in groups of whole columns and in single ones.
template <class Device>
void rows_of_experts(Device& device, double tolerance) {
  for (const RouteProblem& p : kernel_problems()) {
    if (p.m * p.k > 400) continue;  // slow
    for (const DType type : {DType::f32, DType::bf16})
      for (const std::int64_t c : {17, 24}) rows_of_experts(device, p, type, c, tolerance);
  }
  rows_of_experts(device, {.m = 5, .e = 4, .k = 2, .lengths = {3}}, DType::bf16, 560, tolerance);
}

}  // namespace fp8::ops::cases
