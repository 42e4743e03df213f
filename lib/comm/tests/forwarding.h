/// A communicator for tests that change or count some of the calls to another one.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// A communicator that leaves everything to another one of the same ranks.
class Forwarding : public Communicator {
 public:
  explicit Forwarding(Communicator& good) : good_(good) {}
  int rank() const override { return good_.rank(); }
  int size() const override { return good_.size(); }
  void barrier() override { good_.barrier(); }
  void all_reduce(std::span<double> v, Reduce op) override { good_.all_reduce(v, op); }
  void all_reduce(std::span<std::int64_t> v, Reduce op) override { good_.all_reduce(v, op); }
  void broadcast(std::span<std::byte> bytes, int root) override { good_.broadcast(bytes, root); }
  std::vector<std::string> all_gather(const std::string& text) override { return good_.all_gather(text); }
  Request start_all_gathers(std::span<const GatheredTensor> tensors) override {
    return good_.start_all_gathers(tensors);
  }
  Request start_reduce_scatters(std::span<const ScatteredTensor> tensors) override {
    return good_.start_reduce_scatters(tensors);
  }
  Request start_all_reduces(std::span<const std::span<float>> tensors, Reduce op) override {
    return good_.start_all_reduces(tensors, op);
  }
  Request start_all_to_all(const std::byte* from, std::span<const std::int64_t> bytes_to, std::byte* to,
                           std::span<const std::int64_t> bytes_from) override {
    return good_.start_all_to_all(from, bytes_to, to, bytes_from);
  }
  Request start_messages(std::span<const SentMessage> sent, std::span<const ReceivedMessage> received) override {
    return good_.start_messages(sent, received);
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    return good_.split(color, key, name);
  }
  bool watch(double seconds, const std::function<void(const watchdog::Stall&)>& on_stall) override {
    return good_.watch(seconds, on_stall);
  }
  watchdog::ProgressTable& progress() override { return good_.progress(); }
  std::string text_of_rank(int rank) const override { return good_.text_of_rank(rank); }

 private:
  Communicator& good_;
};

}  // namespace fp8::comm
