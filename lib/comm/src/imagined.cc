// Groups of ranks that do not exist: what a dry run asks of a communicator, without processes.
#include "imagined.h"

#include <algorithm>

namespace fp8::comm {
namespace {

[[noreturn]] void no_processes(const char* what) {
  throw Error(std::string(what) + ": the ranks of a plan have no processes");
}

class Imagined final : public Communicator {
 public:
  Imagined(int rank, int size, int machines) : rank_(rank), size_(size), machines_(machines) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int machines() const override { return machines_; }
  void barrier() override {}
  using Communicator::all_reduce;
  void all_reduce(std::span<double>, Reduce) override {}
  void all_reduce(std::span<std::int64_t>, Reduce) override {}
  void broadcast(std::span<std::byte>, int) override {}
  std::vector<std::string> all_gather(const std::string& text) override {
    return std::vector<std::string>(static_cast<std::size_t>(size_), text);
  }
  Request start_all_gathers(std::span<const GatheredTensor>) override { no_processes("all-gather"); }
  Request start_reduce_scatters(std::span<const ScatteredTensor>) override { no_processes("reduce-scatter"); }
  Request start_all_reduces(std::span<const std::span<float>>, Reduce) override { no_processes("all-reduce"); }
  Request start_all_to_all(const std::byte*, std::span<const std::int64_t>, std::byte*,
                           std::span<const std::int64_t>) override {
    no_processes("all-to-all");
  }
  Request start_messages(std::span<const SentMessage>, std::span<const ReceivedMessage>) override {
    no_processes("message");
  }
  std::unique_ptr<Communicator> split(int, int, const std::string&) override { no_processes("split"); }
  bool watch(double, const std::function<void(const watchdog::Stall&)>&) override { return true; }
  watchdog::ProgressTable& progress() override { return progress_; }

 private:
  int rank_, size_, machines_;
  watchdog::ProgressTable progress_;
};

}  // namespace

std::shared_ptr<Communicator> imagined_group(const std::vector<int>& ranks, int own, int each) {
  const auto at = std::ranges::lower_bound(ranks, own) - ranks.begin();
  int machines = 1;
  for (std::size_t i = 1; i < ranks.size(); ++i) machines += ranks[i] / each != ranks[i - 1] / each ? 1 : 0;
  return std::make_shared<Imagined>(static_cast<int>(at), static_cast<int>(ranks.size()), machines);
}

}  // namespace fp8::comm
