// A group of one rank: every collective is the identity or a copy. Its watchdog only detects work without progress.
#include <cstring>

#include "fp8/comm/comm.h"
#include "fp8/watchdog/watchdog.h"
#include "magnitude.h"
#include "one_rank.h"

namespace fp8::comm {
namespace {

// The channel of a rank without peers.
class NoChannel final : public watchdog::Channel {
 public:
  int size() const override { return 1; }
  void send(int, const watchdog::Message&) override {}
  std::optional<std::pair<int, watchdog::Message>> receive() override { return std::nullopt; }
};

class Solo final : public OneRank<Communicator> {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  using OneRank::all_reduce;
  void all_reduce(std::span<double>, Reduce op) override { refuse_amax(op); }
  void all_reduce(std::span<std::int64_t>, Reduce op) override { refuse_amax(op); }
  void broadcast(std::span<std::byte>, int root) override {
    if (root != 0) throw Error("broadcast: no rank " + std::to_string(root));
  }
  std::vector<std::string> all_gather(const std::string& text) override { return {text}; }
  std::unique_ptr<Communicator> split(int, int, const std::string&) override { return solo(); }
  bool watch(double seconds, const std::function<void(const watchdog::Stall&)>& on_stall) override {
    watchdog_.reset();
    if (seconds > 0)
      watchdog_ = std::make_unique<watchdog::Watchdog>(std::make_unique<NoChannel>(), progress_, 0, seconds, on_stall);
    return true;
  }
  watchdog::ProgressTable& progress() override { return progress_; }

 private:
  static void refuse_amax(Reduce op) {
    if (op == Reduce::amax) throw Error("all-reduce: amax is for float");
  }
  void copy(const void* from, void* to, std::int64_t bytes) const override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void clear(std::span<float> values) const override { clear_signs(values); }
  watchdog::ProgressTable progress_;
  std::unique_ptr<watchdog::Watchdog> watchdog_;
};

}  // namespace

std::unique_ptr<Communicator> solo() { return std::make_unique<Solo>(); }

}  // namespace fp8::comm
