/// Cases that every Communicator must pass. The programs for one process, for MPI and for NCCL run these
/// same cases.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "fp8/base/host.h"
#include "fp8/comm/comm.h"
#include "fp8/comm/hosts.h"
#include "fp8_test.h"

namespace fp8::comm {

using device::Context;

/// Values where a communicator wants them: written there, read back.
template <class T>
class There {
 public:
  There(const Context& ctx, const std::vector<T>& values)
      : ctx_(ctx), size_(values.size()), memory_(values.size() * sizeof(T), ctx.device, "test") {
    device::copy_bytes(ctx_, memory_.data(), ctx_.device, values.data(), device::DeviceType::host, memory_.size());
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  std::span<T> span() const { return {data(), size_}; }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    device::copy_bytes(ctx_, values.data(), device::DeviceType::host, memory_.data(), ctx_.device, memory_.size());
    return values;
  }

 private:
  Context ctx_;
  std::size_t size_;
  device::Buffer memory_;
};

/// One tensor alone.
inline Request start(Communicator& group, const GatheredTensor& t) { return group.start_all_gathers({&t, 1}); }
inline Request start(Communicator& group, const ScatteredTensor& t) { return group.start_reduce_scatters({&t, 1}); }
inline Request start(Communicator& group, std::span<float> t, Reduce op) {
  return group.start_all_reduces({&t, 1}, op);
}
/// One message alone.
inline Request start(Communicator& group, const SentMessage& m) { return group.start_messages({&m, 1}, {}); }
inline Request start(Communicator& group, const ReceivedMessage& m) { return group.start_messages({}, {&m, 1}); }

/// Sums, extremes and broadcasts of small integers.
inline void check_reductions(Communicator& group, const Context& ctx) {
  const int rank = group.rank(), size = group.size();
  const int triangle = size * (size + 1) / 2;
  group.barrier();

  const There<float> f(ctx, {static_cast<float>(rank + 1), 0.5f});
  group.all_reduce(f.span(), Reduce::sum);
  EXPECT_EQ(f.read(), (std::vector<float>{static_cast<float>(triangle), 0.5f * static_cast<float>(size)}));

  std::vector<double> d{rank + 1.0, -rank - 1.0};
  group.all_reduce(std::span(d), Reduce::max);
  EXPECT_EQ(d, (std::vector<double>{static_cast<double>(size), -1.0}));

  const There<double> sums(ctx, {rank + 1.0, 0x1p-40});
  group.sum_here(sums.span());
  EXPECT_EQ(sums.read(), (std::vector<double>{static_cast<double>(triangle), 0x1p-40 * size}));

  std::vector<std::int64_t> i{rank + (std::int64_t{1} << 40), -rank};
  group.all_reduce(std::span(i), Reduce::min);
  EXPECT_EQ(i, (std::vector<std::int64_t>{std::int64_t{1} << 40, 1 - size}));

  group.all_reduce(std::span<float>(), Reduce::sum);
  EXPECT_THROW(group.all_reduce(std::span(d), Reduce::amax), Error);
  EXPECT_THROW(group.all_reduce(std::span(i), Reduce::amax), Error);

  for (int root = 0; root < size; ++root) {
    std::vector<std::byte> bytes(5, std::byte(rank));
    group.broadcast(bytes, root);
    EXPECT_EQ(bytes, std::vector<std::byte>(5, std::byte(root)));
  }
}

/// An amax is NaN if the value of any rank is, else infinity, else the largest; the sign of a zero goes.
inline void check_amax(Communicator& group, const Context& ctx) {
  const bool last = group.rank() == group.size() - 1;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const There<float> there(
      ctx, {static_cast<float>(group.rank() + 1), last ? inf : 1.0f, last ? nan : inf, last ? -nan : 2.0f, -0.0f});
  group.all_reduce(there.span(), Reduce::amax);
  const std::vector<float> v = there.read();
  EXPECT_EQ(v[0], static_cast<float>(group.size()));
  EXPECT_EQ(v[1], inf);
  EXPECT_TRUE(std::isnan(v[2]));
  EXPECT_TRUE(std::isnan(v[3]));
  EXPECT_FALSE(std::signbit(v[4]));
}

/// Texts of different lengths, among them none.
inline void check_texts(Communicator& group) {
  const auto text_of = [](int r) { return std::string(static_cast<std::size_t>(r) * 3, static_cast<char>('a' + r)); };
  const std::vector<std::string> all = group.all_gather(text_of(group.rank()));
  ASSERT_EQ(std::ssize(all), group.size());
  for (int r = 0; r < group.size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], text_of(r));
}

/// Uneven blocks, the last one empty when there are several; from a buffer of its own and from its place in the whole.
inline void check_all_gather(Communicator& group, const Context& ctx, bool in_place) {
  const int size = group.size(), rank = group.rank();
  std::vector<std::int64_t> bytes_of;
  std::vector<std::byte> expected;
  std::size_t place = 0;
  for (int r = 0; r < size; ++r) {
    if (r == rank) place = expected.size();
    bytes_of.push_back(size > 1 && r == size - 1 ? 0 : 70 + 11 * r);
    for (std::int64_t i = 0; i < bytes_of.back(); ++i) expected.push_back(std::byte((i * 7 + r * 31) & 0xFF));
  }
  const std::size_t own = static_cast<std::size_t>(bytes_of[static_cast<std::size_t>(rank)]);
  std::vector<std::byte> begin(expected.size(), std::byte{0xEE});
  const std::vector<std::byte> block(expected.begin() + static_cast<std::ptrdiff_t>(place),
                                     expected.begin() + static_cast<std::ptrdiff_t>(place + own));
  if (in_place) std::copy(block.begin(), block.end(), begin.begin() + static_cast<std::ptrdiff_t>(place));
  const There<std::byte> all(ctx, begin), mine(ctx, block);
  const std::byte* const from = in_place ? all.data() + place : mine.data();
  Request request = start(group, GatheredTensor{from, all.data(), bytes_of});
  while (!request.test()) {
  }
  request.wait();
  EXPECT_EQ(all.read(), expected);
}

/// Sums of integers, uneven blocks, the first one empty when there are several.
inline void check_reduce_scatter(Communicator& group, const Context& ctx, bool in_place, std::int64_t scale = 1) {
  const int size = group.size(), rank = group.rank();
  std::vector<std::int64_t> count_of;
  std::int64_t place = 0, total = 0;
  for (int r = 0; r < size; ++r) {
    if (r == rank) place = total;
    count_of.push_back(size > 1 && r == 0 ? 0 : (5 + r) * scale);
    total += count_of.back();
  }
  std::vector<float> terms(static_cast<std::size_t>(total));
  for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = static_cast<float>(rank + 1) * static_cast<float>(i % 1000);
  const std::int64_t own = count_of[static_cast<std::size_t>(rank)];
  const There<float> full(ctx, terms), mine(ctx, std::vector<float>(static_cast<std::size_t>(own)));
  float* const to = in_place ? full.data() + place : mine.data();
  Request request = start(group, ScatteredTensor{full.data(), to, count_of});
  request.wait();
  EXPECT_TRUE(request.test());
  const float ranks = static_cast<float>(size * (size + 1) / 2);
  const std::vector<float> got = in_place ? full.read() : mine.read();
  const std::int64_t first = in_place ? place : 0;
  for (std::int64_t i = 0; i < own; ++i)
    ASSERT_EQ(got[static_cast<std::size_t>(first + i)], ranks * static_cast<float>((place + i) % 1000));
}

/// Several collectives under way at once, waited for in another order, one of them by its destructor.
inline void check_many_requests(Communicator& group, const Context& ctx) {
  const auto size = static_cast<std::size_t>(group.size()), rank = static_cast<std::size_t>(group.rank());
  const There<float> a(ctx, std::vector<float>(size, 1.0f)), b(ctx, std::vector<float>(size, 2.0f)), sum_a(ctx, {0.0f}),
      sum_b(ctx, {0.0f});
  std::vector<std::byte> begin(size);
  begin[rank] = std::byte(rank + 1);
  const There<std::byte> all(ctx, begin);
  const std::vector<std::int64_t> ones(size, 1);
  {
    Request first = start(group, ScatteredTensor{a.data(), sum_a.data(), ones});
    Request second = start(group, ScatteredTensor{b.data(), sum_b.data(), ones});
    Request third = start(group, GatheredTensor{all.data() + rank, all.data(), ones});
    third.wait();
    second = std::move(third);
    EXPECT_EQ(sum_b.read()[0], 2.0f * static_cast<float>(size));
  }
  EXPECT_EQ(sum_a.read()[0], static_cast<float>(size));
  for (std::size_t r = 0; r < size; ++r) EXPECT_EQ(all.read()[r], std::byte(r + 1));
}

/// Several tensors with one request: even and uneven blocks, one without any, of two calls whose requests are waited
/// for in the other order.
inline void check_several_tensors(Communicator& group, const Context& ctx) {
  const auto size = static_cast<std::size_t>(group.size()), rank = static_cast<std::size_t>(group.rank());
  const std::vector<std::int64_t> even(size, 3), none(size, 0);
  std::vector<std::int64_t> uneven;
  std::size_t first = 0, total = 0;
  for (std::size_t r = 0; r < size; ++r) {
    if (r == rank) first = total;
    uneven.push_back(static_cast<std::int64_t>(2 * r + 1));
    total += 2 * r + 1;
  }
  std::vector<std::byte> blocks(total), threes(3 * size);
  std::fill_n(blocks.begin() + static_cast<std::ptrdiff_t>(first), 2 * rank + 1, std::byte(rank + 1));
  const There<std::byte> a(ctx, threes), b(ctx, blocks), mine(ctx, std::vector<std::byte>(3, std::byte(rank + 5)));
  const There<float> full(ctx, std::vector<float>(total, static_cast<float>(rank + 1))),
      ones(ctx, std::vector<float>(3 * size, 1.0f)), sum(ctx, std::vector<float>(3));
  const std::vector<GatheredTensor> gathers{
      {mine.data(), a.data(), even}, {nullptr, nullptr, none}, {b.data() + first, b.data(), uneven}};
  const std::vector<ScatteredTensor> sums{{full.data(), full.data() + first, uneven}, {ones.data(), sum.data(), even}};
  Request summing = group.start_reduce_scatters(sums), gathering = group.start_all_gathers(gathers);
  while (!gathering.test()) {
  }
  summing.wait();
  std::size_t at = 0;
  for (std::size_t r = 0; r < size; ++r) {
    EXPECT_EQ(a.read()[3 * r + 2], std::byte(r + 5));
    EXPECT_EQ(b.read()[at], std::byte(r + 1));
    at += 2 * r + 1;
    EXPECT_EQ(b.read()[at - 1], std::byte(r + 1));
  }
  EXPECT_EQ(sum.read(), std::vector<float>(3, static_cast<float>(size)));
  EXPECT_EQ(full.read()[first + 2 * rank], static_cast<float>(size * (size + 1) / 2));
  const There<float> three(ctx, std::vector<float>(3, static_cast<float>(rank + 1))),
      five(ctx, std::vector<float>(5, 0.5f));
  const std::vector<std::span<float>> terms{three.span(), {}, five.span()};
  group.start_all_reduces(terms, Reduce::sum).wait();
  EXPECT_EQ(three.read(), std::vector<float>(3, static_cast<float>(size * (size + 1) / 2)));
  EXPECT_EQ(five.read(), std::vector<float>(5, 0.5f * static_cast<float>(size)));
  EXPECT_TRUE(group.start_all_reduces(std::vector<std::span<float>>(2), Reduce::amax).test());
  EXPECT_TRUE(group.start_all_gathers({}).test());
  EXPECT_TRUE(group.start_reduce_scatters(std::vector<ScatteredTensor>{{nullptr, nullptr, none}}).test());
}

/// Started all-reduces of n floats: on the host sums have the bits of a sum in the order of ranks; elsewhere the same
/// bits on all ranks, and again.
inline void check_started_sum(Communicator& group, const Context& ctx, std::size_t n) {
  const auto text_of = [](const std::vector<float>& v) {
    return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
  };
  std::vector<float> terms(n);
  for (std::size_t i = 0; i < n; ++i) {
    const int exponent = static_cast<int>((5 * i + 7 * static_cast<std::size_t>(group.rank())) % 25);
    terms[i] = std::ldexp(std::sin(static_cast<float>(i) + 0.37f * static_cast<float>(group.rank())), exponent);
  }
  std::vector<float> sums(n);
  for (const std::string& text : group.all_gather(text_of(terms))) {
    std::vector<float> other(n);
    if (n > 0) std::memcpy(other.data(), text.data(), text.size());
    for (std::size_t i = 0; i < n; ++i) sums[i] += other[i];
  }
  std::vector<std::string> results;
  for (int again = 0; again < 2; ++again) {
    const There<float> there(ctx, terms);
    Request request = start(group, there.span(), Reduce::sum);
    while (again == 1 && !request.test()) {
    }
    request.wait();
    results.push_back(text_of(there.read()));
  }
  if (ctx.device == device::DeviceType::host) {
    EXPECT_TRUE(results[0] == text_of(sums)) << n;
  }
  EXPECT_TRUE(results[0] == results[1]) << n;
  for (const std::string& other : group.all_gather(results[0])) EXPECT_TRUE(other == results[0]) << n;
}

/// The elementwise extremes of n floats. A NaN of one rank in each place is the amax.
inline void check_started_extremes(Communicator& group, const Context& ctx, std::size_t n) {
  const auto term = [](int rank, std::size_t i) {
    return static_cast<float>((7 * i + 3 * static_cast<std::size_t>(rank)) % 11) - 5;
  };
  std::vector<float> mine(n), largest(n), smallest(n), magnitudes(n);
  for (std::size_t i = 0; i < n; ++i) {
    mine[i] = largest[i] = smallest[i] = term(group.rank(), i);
    for (int r = 0; r < group.size(); ++r) {
      largest[i] = std::max(largest[i], term(r, i));
      smallest[i] = std::min(smallest[i], term(r, i));
      magnitudes[i] = std::max(magnitudes[i], std::abs(term(r, i)));
    }
  }
  const There<float> maxima(ctx, mine), minima(ctx, mine), amaxes(ctx, mine);
  Request first = start(group, maxima.span(), Reduce::max);
  Request second = start(group, minima.span(), Reduce::min);
  group.all_reduce(amaxes.span(), Reduce::amax);
  second.wait();
  first.wait();
  EXPECT_EQ(maxima.read(), largest) << n;
  EXPECT_EQ(minima.read(), smallest) << n;
  EXPECT_EQ(amaxes.read(), magnitudes) << n;
  std::vector<float> odd(n, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < n; ++i) {
    if (static_cast<int>(i % static_cast<std::size_t>(group.size())) == group.rank())
      odd[i] = -std::numeric_limits<float>::quiet_NaN();
  }
  const There<float> nans(ctx, odd);
  group.all_reduce(nans.span(), Reduce::amax);
  for (const float v : nans.read()) EXPECT_TRUE(std::isnan(v) && !std::signbit(v)) << n;
}

/// The bytes of a block or a message from one rank to another.
inline std::vector<std::byte> bytes_of_message(int from, int to, std::int64_t size, int number = 0) {
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < size; ++i) bytes.push_back(std::byte((31 * from + 17 * to + 101 * number + i) & 0xFF));
  return bytes;
}

/// The blocks of an all-to-all where size_of(s, r) bytes go from rank s to rank r.
template <class Size>
struct Exchange {
  Exchange(const Communicator& group, const Context& ctx, Size size_of) {
    std::vector<std::byte> sent;
    for (int r = 0; r < group.size(); ++r) {
      bytes_to.push_back(size_of(group.rank(), r));
      bytes_from.push_back(size_of(r, group.rank()));
      const std::vector<std::byte> mine = bytes_of_message(group.rank(), r, bytes_to.back());
      const std::vector<std::byte> others = bytes_of_message(r, group.rank(), bytes_from.back());
      sent.insert(sent.end(), mine.begin(), mine.end());
      expected.insert(expected.end(), others.begin(), others.end());
    }
    from.emplace(ctx, sent);
    to.emplace(ctx, std::vector<std::byte>(expected.size(), std::byte{0xEE}));
  }
  Request start(Communicator& group) const {
    return group.start_all_to_all(from->data(), bytes_to, to->data(), bytes_from);
  }
  std::vector<std::int64_t> bytes_to, bytes_from;
  std::vector<std::byte> expected;
  std::optional<There<std::byte>> from, to;
};

/// All-to-alls whose blocks differ in both directions; some are empty, and a rank sends and receives nothing.
inline void check_all_to_all(Communicator& group, const Context& ctx) {
  const int last = group.size() - 1;
  const Exchange uneven(group, ctx, [](int s, int r) { return (s + 2 * r) % 3 == 1 ? 0 : 3 + 50 * s + 11 * r; });
  const Exchange without_last(group, ctx,
                              [&](int s, int r) { return last > 0 && (s == last || r == last) ? 0 : 64 + s - r; });
  const Exchange to_zero(group, ctx, [](int s, int r) { return r == 0 ? 1 + s : 0; });
  const Exchange nothing(group, ctx, [](int, int) { return 0; });
  Request first = uneven.start(group), second = without_last.start(group);
  nothing.start(group).wait();
  Request third = to_zero.start(group);
  while (!third.test()) {
  }
  second.wait();
  first.wait();
  EXPECT_EQ(uneven.to->read(), uneven.expected);
  EXPECT_EQ(without_last.to->read(), without_last.expected);
  EXPECT_EQ(to_zero.to->read(), to_zero.expected);
}

/// Messages to the next rank and from the one before; two between the same ranks arrive in order; some are empty.
inline void check_messages(Communicator& group, const Context& ctx) {
  const int size = group.size(), rank = group.rank();
  EXPECT_TRUE(group.start_messages({}, {}).test());
  if (size == 1) return;
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  const auto length = [](int from, int number) { return std::int64_t{70} * number + 3 * from; };
  std::vector<There<std::byte>> out, in;
  std::vector<SentMessage> sent;
  std::vector<ReceivedMessage> received;
  for (int n = 0; n < 3; ++n) {
    out.emplace_back(ctx, bytes_of_message(rank, next, length(rank, n), n));
    in.emplace_back(ctx, std::vector<std::byte>(static_cast<std::size_t>(length(before, n)), std::byte{0xEE}));
    sent.push_back({out.back().data(), length(rank, n), next});
    received.push_back({in.back().data(), length(before, n), before});
  }
  Request request = group.start_messages(sent, received);
  while (!request.test()) {
  }
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(in[static_cast<std::size_t>(n)].read(), bytes_of_message(before, rank, length(before, n), n));
  }
}

/// Ranks 0 and 1, 2 and 3, and so on exchange messages of the same size in both directions, by a call for each; the
/// requests are waited for in another order.
inline void check_pairs(Communicator& group, const Context& ctx, std::int64_t bytes) {
  const int rank = group.rank(), peer = rank ^ 1;
  if (peer >= group.size()) return;
  const auto count = static_cast<std::size_t>(bytes);
  const There<std::byte> first(ctx, bytes_of_message(rank, peer, bytes, 1)),
      second(ctx, bytes_of_message(rank, peer, bytes, 2)), third(ctx, std::vector<std::byte>(count)),
      fourth(ctx, std::vector<std::byte>(count));
  std::vector<Request> requests;
  const auto send = [&] {
    for (const auto* m : {&first, &second}) requests.push_back(start(group, SentMessage{m->data(), bytes, peer}));
  };
  const auto receive = [&] {
    for (const auto* m : {&third, &fourth}) requests.push_back(start(group, ReceivedMessage{m->data(), bytes, peer}));
  };
  if (rank < peer) send();  // a GPU runs them in the order of the calls
  receive();
  if (rank > peer) send();
  while (!requests.empty()) {
    requests.back().wait();
    requests.pop_back();
  }
  EXPECT_EQ(third.read(), bytes_of_message(peer, rank, bytes, 1));
  EXPECT_EQ(fourth.read(), bytes_of_message(peer, rank, bytes, 2));
}

/// Collectives and messages of every kind under way at the same time.
inline void check_all_kinds(Communicator& group, const Context& ctx) {
  const int size = group.size(), rank = group.rank(), next = (rank + 1) % size, before = (rank + size - 1) % size;
  const auto ranks = static_cast<std::size_t>(size);
  const std::vector<std::int64_t> threes(ranks, 3);
  const There<float> sums(ctx, std::vector<float>(1001, static_cast<float>(rank + 1))),
      largest(ctx, std::vector<float>(7, static_cast<float>(-rank))), full(ctx, std::vector<float>(3 * ranks, 2.0f)),
      part(ctx, std::vector<float>(3));
  const Exchange blocks(group, ctx, [](int s, int r) { return 1 + 9 * s + r; });
  const There<std::byte> out(ctx, bytes_of_message(rank, next, 99)), in(ctx, std::vector<std::byte>(99)),
      all(ctx, std::vector<std::byte>(3 * ranks)), mine(ctx, std::vector<std::byte>(3, std::byte(rank + 1)));
  std::vector<Request> requests;
  requests.push_back(start(group, sums.span(), Reduce::sum));
  requests.push_back(blocks.start(group));
  requests.push_back(start(group, GatheredTensor{mine.data(), all.data(), threes}));
  if (size > 1) {
    requests.push_back(group.start_messages(std::vector<SentMessage>{{out.data(), 99, next}},
                                            std::vector<ReceivedMessage>{{in.data(), 99, before}}));
  }
  requests.push_back(start(group, largest.span(), Reduce::max));
  requests.push_back(start(group, ScatteredTensor{full.data(), part.data(), threes}));
  while (!requests.empty()) {
    requests.back().wait();
    requests.pop_back();
  }
  EXPECT_EQ(sums.read(), std::vector<float>(1001, static_cast<float>(size * (size + 1) / 2)));
  EXPECT_EQ(largest.read(), std::vector<float>(7, 0.0f));
  EXPECT_EQ(part.read(), std::vector<float>(3, 2.0f * static_cast<float>(size)));
  EXPECT_EQ(blocks.to->read(), blocks.expected);
  for (std::size_t r = 0; r < ranks; ++r) EXPECT_EQ(all.read()[3 * r + 1], std::byte(r + 1));
  if (size > 1) {
    EXPECT_EQ(in.read(), bytes_of_message(before, rank, 99));
  }
}

/// Everything that travels by messages of MPI, with vectors of at most n floats or bytes.
inline void check_exchanges(Communicator& group, const Context& ctx, int n) {
  for (const int some : {0, 1, 2, 3, n}) {
    check_started_sum(group, ctx, static_cast<std::size_t>(some));
    check_started_extremes(group, ctx, static_cast<std::size_t>(some));
    check_pairs(group, ctx, some);
  }
  check_all_to_all(group, ctx);
  check_messages(group, ctx);
  check_all_kinds(group, ctx);
}

/// Sizes that make no sense are refused before anything is sent.
inline void check_refusals(Communicator& group) {
  std::vector<float> f(8);
  std::vector<std::int64_t> wrong(static_cast<std::size_t>(group.size()) + 1, 0);
  EXPECT_EQ(test::error_of([&] {
              start(group, ScatteredTensor{f.data(), f.data(), wrong});
            }),
            "reduce-scatter: needs one block size for each rank");
  wrong.pop_back();
  wrong[0] = -1;
  EXPECT_EQ(test::error_of([&] { group.gather({nullptr, nullptr, wrong}); }), "all-gather: negative block size");

  const auto size = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> ones(size, 1), twos(size, 2), more(size + 1, 1);
  std::vector<std::byte> bytes(3 * size);
  const auto all_to_all = [&](const std::vector<std::int64_t>& to, const std::vector<std::int64_t>& from) {
    return test::error_of([&] { group.start_all_to_all(bytes.data(), to, bytes.data() + size, from); });
  };
  EXPECT_EQ(all_to_all(more, ones), "all-to-all: needs one block size for each rank");
  EXPECT_EQ(all_to_all(ones, more), "all-to-all: needs one block size for each rank");
  EXPECT_EQ(all_to_all(ones, wrong), "all-to-all: negative block size");
  EXPECT_EQ(all_to_all(ones, twos), "all-to-all: two sizes for the own block");
  const std::string self = ": rank " + std::to_string(group.rank()) + " is this rank itself";
  EXPECT_EQ(test::error_of([&] { start(group, SentMessage{bytes.data(), 1, group.rank()}); }), "send" + self);
  EXPECT_EQ(test::error_of([&] { start(group, ReceivedMessage{bytes.data(), 0, group.rank()}); }), "receive" + self);
  EXPECT_EQ(test::error_of([&] { start(group, SentMessage{bytes.data(), 1, -1}); }), "send: no rank -1");
  const int end = group.size(), next = (group.rank() + 1) % end;
  EXPECT_EQ(test::error_of([&] {
              start(group, ReceivedMessage{bytes.data(), 1, end});
            }),
            "receive: no rank " + std::to_string(end));
  if (end == 1) return;
  EXPECT_EQ(test::error_of([&] { start(group, SentMessage{bytes.data(), -1, next}); }), "send: negative size");
}

/// The message that agree() throws if ranks fail; empty when it does not throw.
template <class Fails, class Message>
std::string agreed(Communicator& group, Fails fails, Message message, Exit code = Exit::bad) {
  try {
    agree(group, [&] {
      if (fails(group.rank())) throw Error(message(group.rank()), code);
    });
    return "";
  } catch (const AgreedError& e) {
    EXPECT_EQ(e.code(), code);
    return e.what();
  }
}

/// All ranks throw the error of the lowest failing rank.
inline void check_agreement(Communicator& group) {
  const int size = group.size(), last = size - 1;
  const auto everyone = [](int) { return true; };
  const auto plain = [](int) { return std::string("x.h5: damaged\nhere"); };
  EXPECT_EQ(agreed(
                group, [](int) { return false; }, plain),
            "");
  EXPECT_EQ(agreed(group, everyone, plain, Exit::diverged), "x.h5: damaged\nhere");
  const auto numbered = [](int r) { return "disk " + std::to_string(r) + " is full"; };
  EXPECT_EQ(agreed(group, everyone, numbered),
            size > 1 ? "rank " + group.text_of_rank(0) + ": disk 0 is full" : "disk 0 is full");
  const std::string of_last = "disk " + std::to_string(last) + " is full";
  EXPECT_EQ(agreed(
                group, [&](int r) { return r == last; }, numbered, Exit::again),
            size > 1 ? "rank " + group.text_of_rank(last) + ": " + of_last : of_last);
  try {
    agree(group, [] { throw Error("x.h5: exists", {{"force", "to replace it"}, {"output", ""}}); });
    ADD_FAILURE() << "no error";
  } catch (const AgreedError& e) {
    ASSERT_EQ(e.hints().size(), 2u);
    EXPECT_EQ(e.hints()[0].setting + ": " + e.hints()[0].text, "force: to replace it");
    EXPECT_EQ(e.hints()[1].setting + ": " + e.hints()[1].text, "output: ");
  }
  EXPECT_THROW(agree(group, [] { throw std::bad_alloc(); }), AgreedError);
  EXPECT_THROW(agree(group, [] { throw std::runtime_error("odd"); }), AgreedError);
}

/// Groups by parity, in reverse order.
inline void check_split(Communicator& group) {
  const int parity = group.rank() % 2;
  const std::unique_ptr<Communicator> half = group.split(parity, -group.rank(), "half");
  EXPECT_EQ(half->size(), (group.size() + 1 - parity) / 2);
  EXPECT_EQ(half->rank(), half->size() - 1 - group.rank() / 2);
  std::vector<std::int64_t> sum{group.rank()};
  half->all_reduce(std::span(sum), Reduce::sum);
  std::int64_t expected = 0;
  for (int r = parity; r < group.size(); r += 2) expected += r;
  EXPECT_EQ(sum[0], expected);
}

/// The host of each rank; tests run on one machine.
inline void check_hosts(Communicator& group) {
  EXPECT_EQ(hosts(group), std::vector<std::string>(static_cast<std::size_t>(group.size()), host_name()));
}

/// All of the above; the context has the device of the communicator's floats and blocks.
inline void check_communicator(Communicator& group, const Context& ctx = {}) {
  ASSERT_EQ(group.device(), ctx.device);
  check_reductions(group, ctx);
  check_amax(group, ctx);
  check_texts(group);
  for (const bool in_place : {false, true}) {
    check_all_gather(group, ctx, in_place);
    check_reduce_scatter(group, ctx, in_place);
    check_reduce_scatter(group, ctx, in_place, 3001);
  }
  check_many_requests(group, ctx);
  check_several_tensors(group, ctx);
  check_exchanges(group, ctx, 10007);
  check_refusals(group);
  check_agreement(group);
  check_split(group);
  check_hosts(group);
}

}  // namespace fp8::comm
