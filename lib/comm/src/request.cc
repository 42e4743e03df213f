// A collective is waited for exactly once, at the latest by the destructor.
#include "fp8/comm/comm.h"

namespace fp8::comm {

Request& Request::operator=(Request&& other) noexcept {
  if (this != &other) {
    Request before;
    std::swap(before.op_, op_);
    op_ = std::move(other.op_);
  }
  return *this;
}

Request::~Request() {
  try {
    wait();
  } catch (...) {
    // A destructor cannot report it. The same failure also breaks the next collective, which reports it.
  }
}

void Request::wait() {
  if (const std::unique_ptr<Operation> op = std::move(op_)) op->wait();
}

bool Request::test() {
  if (!op_) return true;
  std::unique_ptr<Operation> op = std::move(op_);
  const bool done = op->test();
  if (!done) op_ = std::move(op);
  return done;
}

}  // namespace fp8::comm
