// Sums of small integers, which are exact in every order. The time of one is that of the slowest rank.
#include "all_reduces.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "fp8/comm/device.h"
#include "fp8/device/device.h"
#include "fp8/tensor/tensor.h"
#include "fp8/train/device_setup.h"
#include "on_device.h"

namespace fp8::probe {
namespace {

using comm::Communicator;
using comm::Reduce;

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The ranks that take part.
struct Ranks {
  Communicator& host;          // the ranks
  Communicator& sums;          // the same, with the memory of the context's device
  const device::Context& ctx;  // of this rank
  const char* library;         // MPI or NCCL
};

AllReduce time_one(const Ranks& ranks, std::int64_t bytes) {
  constexpr std::size_t kPeriod = 7;
  const auto term = [](int rank, std::size_t i) {
    return static_cast<float>((static_cast<std::size_t>(rank) + i) % kPeriod);
  };
  std::vector<float> terms(static_cast<std::size_t>(bytes) / sizeof(float));
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = term(ranks.host.rank(), i);
  const tensor::Tensor values = placed(ranks.ctx, terms, dtype::DType::f32, {std::ssize(terms)});
  device::synchronize(ranks.ctx);
  ranks.host.barrier();
  const double start = monotonic_seconds();
  ranks.sums.all_reduce(std::span(values.as<float>(), terms.size()), Reduce::sum);
  device::synchronize(ranks.ctx);
  double seconds = monotonic_seconds() - start;
  ranks.host.all_reduce(std::span(&seconds, 1), Reduce::max);
  std::array<float, kPeriod> wanted{};
  for (int rank = 0; rank < ranks.host.size(); ++rank)
    for (std::size_t i = 0; i < kPeriod; ++i) wanted.at(i) += term(rank, i);
  const std::vector<float> got = floats_of(ranks.ctx, values.view());
  std::int64_t exact = 1;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != wanted[i % kPeriod]) exact = 0;
  ranks.host.all_reduce(std::span(&exact, 1), Reduce::min);
  return {ranks.library, ranks.host.size(), bytes, seconds, exact != 0};
}

// The fastest of `times` all-reduces; inexact if one was.
AllReduce fastest(const Ranks& ranks, std::int64_t bytes, int times) {
  AllReduce best = time_one(ranks, bytes);
  for (int i = 1; i < times; ++i) {
    const AllReduce next = time_one(ranks, bytes);
    best.seconds = std::min(best.seconds, next.seconds);
    best.exact &= next.exact;
  }
  return best;
}

// A small all-reduce, and a large one of `most` bytes at most.
std::vector<AllReduce> time_both_sizes(const Ranks& ranks, std::int64_t most) {
  constexpr std::int64_t kSmall = 8, kFirst = 64 << 10, kFactor = 4;
  constexpr double kEnough = 0.1;  // seconds
  (void)time_one(ranks, kSmall);   // makes the connections
  std::vector<AllReduce> both{fastest(ranks, kSmall, 20)};
  std::int64_t bytes = kFirst;
  both.push_back(fastest(ranks, bytes, 3));
  for (; both[1].seconds < kEnough && bytes < most; both[1] = fastest(ranks, bytes, 3)) bytes *= kFactor;
  return both;
}

}  // namespace

std::vector<AllReduce> time_host_all_reduces(Communicator& world, const std::vector<std::string>& hosts) {
  constexpr std::int64_t kBetween = 64 << 20, kInside = 4 << 20;  // ranks of one host share its memory
  const bool one_host = std::ranges::count(hosts, hosts[0]) == std::ssize(hosts);
  const std::string& own = hosts[static_cast<std::size_t>(world.rank())];
  const bool takes_part = one_host || std::ranges::find(hosts, own) - hosts.begin() == world.rank();
  const auto part = world.split(takes_part ? 0 : 1, world.rank(), "the all-reduces");
  const device::Context ctx;
  std::vector<AllReduce> both(2);
  if (takes_part) both = time_both_sizes({*part, *part, ctx, "MPI"}, one_host ? kInside : kBetween);
  for (AllReduce& one : both) {
    std::array<double, 2> numbers{static_cast<double>(one.bytes), one.seconds};
    std::array<std::int64_t, 2> counts{one.ranks, one.exact ? 1 : 0};
    world.broadcast(std::as_writable_bytes(std::span(numbers)), 0);
    world.broadcast(std::as_writable_bytes(std::span(counts)), 0);
    one = {"MPI", static_cast<int>(counts[0]), static_cast<std::int64_t>(numbers[0]), numbers[1], counts[1] != 0};
  }
  return both;
}

std::vector<AllReduce> time_gpu_all_reduces(Communicator& world, int local_rank) {
  constexpr std::int64_t kMost = 256 << 20;
  const device::Device gpu(device::DeviceType::cuda, train::gpu_of(local_rank, device::cuda_device_count()));
  const device::Context ctx = gpu.context();
  const auto part = world.split(0, world.rank(), "the all-reduces of GPUs");
  const auto sums = comm::on_device(*part, ctx);
  return time_both_sizes({*part, *sums, ctx, "NCCL"}, kMost);
}

}  // namespace fp8::probe
