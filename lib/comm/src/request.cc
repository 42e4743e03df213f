// A collective is waited for exactly once, at the latest by the destructor. Several may have one request.
#include <utility>

#include "together.h"

namespace fp8::comm {
namespace {

// Collectives or messages that were started one after the other. When one fails, the destructor waits for those behind
// it.
class Several final : public Request::Operation {
 public:
  explicit Several(std::vector<Request> parts) : parts_(std::move(parts)) {}
  void wait() override {
    for (Request& r : parts_) r.wait();
  }
  bool test() override {
    bool done = true;
    for (Request& r : parts_) done = r.test() && done;  // each makes progress
    return done;
  }

 private:
  std::vector<Request> parts_;
};

}  // namespace

Request together(std::vector<Request> parts) {
  return parts.empty() ? Request() : Request(std::make_unique<Several>(std::move(parts)));
}

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
    // A destructor cannot report the failure. It also breaks the next collective, which reports it.
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
