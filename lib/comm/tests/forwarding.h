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
  void all_reduce(std::span<float> v, Reduce op) override { good_.all_reduce(v, op); }
  void all_reduce(std::span<double> v, Reduce op) override { good_.all_reduce(v, op); }
  void all_reduce(std::span<std::int64_t> v, Reduce op) override { good_.all_reduce(v, op); }
  void broadcast(std::span<std::byte> bytes, int root) override { good_.broadcast(bytes, root); }
  std::vector<std::string> all_gather(const std::string& text) override { return good_.all_gather(text); }
  Request start_all_gather(const std::byte* mine, std::byte* all, std::span<const std::int64_t> bytes) override {
    return good_.start_all_gather(mine, all, bytes);
  }
  Request start_reduce_scatter(float* full, float* mine, std::span<const std::int64_t> counts) override {
    return good_.start_reduce_scatter(full, mine, counts);
  }
  Request start_all_reduce(std::span<float> values, Reduce op) override { return good_.start_all_reduce(values, op); }
  Request start_all_to_all(const std::byte* from, std::span<const std::int64_t> bytes_to, std::byte* to,
                           std::span<const std::int64_t> bytes_from) override {
    return good_.start_all_to_all(from, bytes_to, to, bytes_from);
  }
  Request start_send(const std::byte* from, std::int64_t bytes, int to) override {
    return good_.start_send(from, bytes, to);
  }
  Request start_receive(std::byte* to, std::int64_t bytes, int from) override {
    return good_.start_receive(to, bytes, from);
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    return good_.split(color, key, name);
  }
  bool watch(double seconds, const std::function<void(const watchdog::Stall&)>& on_stall) override {
    return good_.watch(seconds, on_stall);
  }
  watchdog::ProgressTable& progress() override { return good_.progress(); }

 private:
  Communicator& good_;
};

}  // namespace fp8::comm
