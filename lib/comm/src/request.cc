// A collective is waited for exactly once, at the latest by the destructor. Several may have one request.
#include <utility>

#include "fp8/comm/comm.h"

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

template <class Tensor, class Start>
Request start_each(std::span<const Tensor> tensors, Start&& start) {
  std::vector<Request> parts;
  for (const Tensor& t : tensors) parts.push_back(start(t));
  return Request(std::make_unique<Several>(std::move(parts)));
}

}  // namespace

Request Communicator::start_all_gathers(std::span<const GatheredTensor> tensors) {
  return start_each(tensors, [this](const GatheredTensor& t) { return start_all_gather(t.mine, t.all, t.bytes_of); });
}

Request Communicator::start_reduce_scatters(std::span<const ScatteredTensor> tensors) {
  return start_each(tensors,
                    [this](const ScatteredTensor& t) { return start_reduce_scatter(t.full, t.mine, t.count_of); });
}

Request Communicator::start_sums(std::span<const std::span<float>> tensors) {
  return start_each(tensors, [this](const std::span<float>& t) { return start_all_reduce(t, Reduce::sum); });
}

Request Communicator::start_messages(std::span<const SentMessage> sent, std::span<const ReceivedMessage> received) {
  std::vector<Request> parts;
  for (const ReceivedMessage& m : received) parts.push_back(start_receive(m.to, m.bytes, m.from));
  for (const SentMessage& m : sent) parts.push_back(start_send(m.from, m.bytes, m.to));
  return Request(std::make_unique<Several>(std::move(parts)));
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
