// A queue of what is under way. A stream works in order, so that only its head can be late.
#include "flight.h"

#include <string>
#include <tuple>
#include <utility>

#include "fp8/base/error.h"

namespace fp8::comm {

Flight::Flight(std::shared_ptr<Board> board, std::size_t group, Device device)
    : board_(std::move(board)), device_(std::move(device)) {
  std::tie(group_, key_) = board_->add_twin(group);
  board_->add_carrier(this);
}

Flight::~Flight() { board_->remove_carrier(this); }

void Flight::add(const char* name, std::function<bool()> come, std::function<bool()> done) {
  const std::int64_t number = board_->reach(group_);  // not under the lock: the board asks under its own
  const std::lock_guard lock(mutex_);
  let_go();
  items_.push_back({name, number, std::move(come), std::move(done)});
  given_ = number;
}

// What is done is history.
void Flight::let_go() {
  while (!items_.empty() && items_.front().done()) items_.pop_front();
}

std::optional<Waiting> Flight::oldest() {
  const std::lock_guard lock(mutex_);
  try {
    device_.check();
    let_go();
    if (items_.empty() || !items_.front().come()) return std::nullopt;
  } catch (const Error& e) {
    if (items_.empty()) throw;
    throw Error(std::string(e.what()) + " in " + items_.front().name + " " + std::to_string(items_.front().number));
  }
  return Waiting{key_, items_.front().number, items_.front().name, 0};
}

std::optional<std::int64_t> Flight::come_to(std::uint64_t group) {
  if (group != key_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::int64_t come = given_ - static_cast<std::int64_t>(items_.size());
  for (const Item& item : items_) {
    if (!item.come()) break;
    come = item.number;
  }
  return come;
}

void Flight::abort() noexcept { device_.abort(); }

}  // namespace fp8::comm
