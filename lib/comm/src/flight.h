/// Collectives that a device has been given and has not finished, in order: what a watchdog asks a carrier for. Private
/// to comm. Knows neither CUDA nor NCCL: how far the device is, errors and giving up are asked for through functions.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "board.h"

namespace fp8::comm {

/// The flight of a group of ranks. One thread gives it work, the watchdog's looks at it.
class Flight final : public Carrier {
 public:
  /// What a device is asked; called from the watchdog's thread as well.
  struct Device {
    std::function<void()> check;  ///< throws Error for an asynchronous error
    std::function<void()> abort;  ///< gives up what is under way; throws nothing
  };
  /// For the ranks of `group` on the board, which is told of it until it goes.
  Flight(std::shared_ptr<Board> board, std::size_t group, Device device);
  ~Flight() override;
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// Notes a collective, given to the device: whether the device has come to it, and whether it is done.
  void add(const char* name, std::function<bool()> come, std::function<bool()> done);

  std::optional<Waiting> oldest() override;
  std::optional<std::int64_t> come_to(std::uint64_t group) override;
  void abort() noexcept override;

 private:
  struct Item {
    const char* name;
    std::int64_t number;
    std::function<bool()> come, done;
  };
  void let_go();

  std::shared_ptr<Board> board_;
  std::size_t group_ = 0;  // of these collectives alone
  std::uint64_t key_ = 0;
  Device device_;
  std::mutex mutex_;
  std::deque<Item> items_;
  std::int64_t given_ = 0;
};

}  // namespace fp8::comm
