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

  Request start_all_gathers(std::span<const GatheredTensor> tensors) override {
    for (const GatheredTensor& t : tensors) copied(t.mine, t.all, offsets_of(t.bytes_of, 1, "all-gather").back());
    return {};
  }
  Request start_reduce_scatters(std::span<const ScatteredTensor> tensors) override {
    for (const ScatteredTensor& t : tensors)
      copied(t.full, t.mine, offsets_of(t.count_of, 1, "reduce-scatter").back() * std::int64_t{sizeof(float)});
    return {};
  }
  Request start_all_reduces(std::span<const std::span<float>> tensors, Reduce op) override {
    for (const std::span<float> t : tensors)
      if (op == Reduce::amax && !t.empty()) clear(t);
    return {};
  }
  Request start_all_to_all(const std::byte* from, std::span<const std::int64_t> bytes_to, std::byte* to,
                           std::span<const std::int64_t> bytes_from) override {
    copied(from, to, exchanged_blocks(bytes_to, bytes_from, 0, 1).sent.back());
    return {};
  }
  // There is no other rank, so any message is refused.
  Request start_messages(std::span<const SentMessage> sent, std::span<const ReceivedMessage> received) override {
    check_messages(sent, received, 0, 1);
    return {};
  }

 protected:
  /// Copies between different places; bytes > 0.
  virtual void copy(const void* from, void* to, std::int64_t bytes) const = 0;
  /// Clears the signs of values, of which there are some.
  virtual void clear(std::span<float> values) const = 0;

 private:
  void copied(const void* from, void* to, std::int64_t bytes) const {
    if (from != to && bytes > 0) copy(from, to, bytes);
  }
};

}  // namespace fp8::comm
