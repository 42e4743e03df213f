/// Collectives of a group of one rank: each is the identity or a copy. Private to comm.
#pragma once

#include <cstdint>
#include <span>

#include "blocks.h"
#include "fp8/comm/comm.h"

namespace fp8::comm {

/// What communicators of one rank have in common. `Base` is Communicator or derived from it.
template <class Base>
class OneRank : public Base {
 public:
  using Base::all_reduce;
  using Base::Base;

  Request start_all_gather(const std::byte* mine, std::byte* all, std::span<const std::int64_t> bytes_of) override {
    return copied(mine, all, offsets_of(bytes_of, 1, "all-gather").back());
  }
  Request start_reduce_scatter(float* full, float* mine, std::span<const std::int64_t> count_of) override {
    const std::int64_t count = offsets_of(count_of, 1, "reduce-scatter").back();
    return copied(full, mine, count * static_cast<std::int64_t>(sizeof(float)));
  }
  Request start_all_reduce(std::span<float> values, Reduce op) override {
    all_reduce(values, op);
    return {};
  }
  Request start_all_to_all(const std::byte* from, std::span<const std::int64_t> bytes_to, std::byte* to,
                           std::span<const std::int64_t> bytes_from) override {
    return copied(from, to, exchanged_blocks(bytes_to, bytes_from, 0, 1).sent.back());
  }
  // There is no other rank, so both are refused.
  Request start_send(const std::byte*, std::int64_t bytes, int to) override {
    check_message(bytes, 0, to, 1, "send");
    return {};
  }
  Request start_receive(std::byte*, std::int64_t bytes, int from) override {
    check_message(bytes, 0, from, 1, "receive");
    return {};
  }

 protected:
  /// Copies between different places; bytes > 0.
  virtual void copy(const void* from, void* to, std::int64_t bytes) const = 0;

 private:
  Request copied(const void* from, void* to, std::int64_t bytes) const {
    if (from != to && bytes > 0) copy(from, to, bytes);
    return {};
  }
};

}  // namespace fp8::comm
