// 1F1B. No rank waits for ever: a receive waits for one message, which the other stage sends after an action that does
// not depend on this rank's later actions, because stages, schedule and the order of backward are the same everywhere
// (model/stages.h); sends are started and do not block. On the host receives and sends are separate and go on while a
// rank waits for any of them. On a GPU the messages of a group of ranks run in the order in which a rank starts them,
// and each occupies its place until the other rank runs its part. There, what an action sends and what the next one
// receives are one group of messages: in the steady state both are of the same neighbour, whose group has the same two
// messages; before and after it, the groups of stages s and s + 1 that have a message in common follow each other along
// the stages. Schedule.GroupedExchangesCannotDeadlock tries this order with stages that are late at random;
// tests/mpi/device.t runs it on a stand-in for NCCL whose operations begin late at random.
#include "fp8/shard/passes.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "fp8/base/clock.h"
#include "fp8/device/profile.h"
#include "pending.h"
#include "view_bytes.h"

namespace fp8::shard {
namespace {

using model::StageAction;

constexpr const char* kInput = "input of micro-batch ";

// "input of micro-batch 3 from stage 0 to stage 1"; empty if one of the stages does not exist. `what` ends before the
// number, which is counted from 1.
std::string contents_of(const model::StageRange& stage, const char* what, std::int64_t number, int from, int to) {
  if (std::min(from, to) < 0 || std::max(from, to) == stage.stages) return "";
  return what + std::to_string(number) + " from stage " + std::to_string(from) + " to stage " + std::to_string(to);
}

// Waits for messages. `text`: what they carry, for the report of a rank that does not answer.
void await(const ShardedModel& model, Pending& messages, const char* name, const std::string& text) {
  if (model.store.stage().stages == 1 || (model.ctx.dry && messages.number == 0)) return;
  if (model.ctx.dry) {
    wait(model.ctx, name, messages);
  } else {
    watchdog::ProgressTable& progress = model.store.mesh().stages().progress();
    progress.set_contents(text);
    wait(model.ctx, name, messages);
    progress.set_contents("");
  }
  messages = {};
}

// Starts messages to and from the neighbouring stages, if there are any.
Pending start_messages(const ShardedModel& model, std::span<const comm::SentMessage> sent,
                       std::span<const comm::ReceivedMessage> received) {
  if ((sent.empty() && received.empty()) || device::plans_memory(model.ctx)) return {};
  comm::Communicator& stages = model.store.mesh().stages();
  double bytes = 0;
  for (const comm::SentMessage& message : sent) bytes += static_cast<double>(message.bytes);
  return start_pending(model.ctx, "start message", comm::exchange_of(device::ExchangeKind::message, stages, bytes),
                       [&] { return stages.start_messages(sent, received); });
}

// A micro-batch between the beginning of its forward and the end of its backward on this stage.
struct Flight {
  Flight(ShardedModel& model, const StepPasses& passes, int number)
      : memory(model.arena), micro_batch(make(model, passes, number)) {}

  device::PooledMemory memory;  // memory of the batch
  std::int64_t rows = 0;
  model::MicroBatch micro_batch;
  Pending sending;   // the message that it has sent last
  std::string sent;  // what that message carries

 private:
  model::MicroBatch make(ShardedModel& model, const StepPasses& passes, int number) {
    model::Batch batch = passes.batch(model.ctx, memory, number);
    rows = batch.rows();
    if (model.experts) batch.routing = &model.experts->of_micro_batch(number);
    return {model.decoder, model.ctx, model.engine, model.store, batch, model::PassKind::training};
  }
};

class Passes {
 public:
  Passes(ShardedModel& model, const StepPasses& passes)
      : model_(model),
        passes_(passes),
        stage_(model.store.stage()),
        receives_early_(model.ctx.device == device::DeviceType::host),
        actions_(model::stage_schedule(stage_.stages, stage_.number, passes.count)) {}

  PassTimes run() {
    const Clock::time_point first = Clock::now();
    PassTimes times;
    Pending arriving = start(nullptr, at(0));
    for (std::size_t k = 0; k < actions_.size(); ++k) {
      Pending next;
      if (receives_early_) next = start(nullptr, at(k + 1));
      receive(arriving, actions_[k]);
      const Clock::time_point begun = Clock::now();
      if (actions_[k].backward)
        backward(actions_[k].micro_batch);
      else
        forward(actions_[k].micro_batch);
      times.busy += seconds_since(begun);
      if (receives_early_)
        send(actions_[k]);
      else
        next = start(at(k), at(k + 1));
      if (actions_[k].backward) retire(actions_[k].micro_batch);
      arriving = std::move(next);
    }
    await(model_, arriving, "send", sent_by(actions_.back()));
    for (auto& [number, flight] : flights_) finish_send(flight);
    flights_.clear();
    model_.store.set_position({});
    times.total = seconds_since(first);
    return times;
  }

 private:
  const StageAction* at(std::size_t k) const { return k < actions_.size() ? &actions_[k] : nullptr; }

  // The micro-batch, which begins here if it has not begun.
  Flight& flight(int number) {
    const auto found = flights_.find(number);
    if (found != flights_.end()) return found->second;
    return flights_
        .emplace(std::piecewise_construct, std::forward_as_tuple(number),
                 std::forward_as_tuple(model_, passes_, number))
        .first->second;
  }

  void forward(int number) {
    device::mark(model_.ctx, device::kForwardMark, number);
    Flight& f = flight(number);
    model_.store.set_position(passes_.position(number));
    if (stage_.begins()) f.micro_batch.forward_embedding();
    f.micro_batch.forward_layers(stage_.first, stage_.last);
  }

  void backward(int number) {
    device::mark(model_.ctx, device::kBackwardMark, number);
    Flight& f = flight(number);
    finish_send(f);  // it carries the hidden state, whose memory is freed now
    model_.store.gradients().begin_micro_batch(number, passes_.count);
    model_.store.set_position(passes_.position(number));
    const device::Scope scope(model_.arena);
    if (stage_.ends()) {
      const View losses = tensor::allocate(model_.ctx, DType::f32, {f.rows}, "activations");
      f.micro_batch.backward_head(passes_.gradient_scale, losses);
      passes_.losses(losses);
    }
    f.micro_batch.backward_layers(stage_.first, stage_.last);
    if (stage_.begins()) f.micro_batch.backward_embedding();
  }

  // Frees micro-batches after backward. What the last one sends is awaited after the next one's backward.
  void retire(int number) {
    if (number > 0 && !stage_.begins()) {
      finish_send(flight(number - 1));
      flights_.erase(number - 1);
    }
    if (stage_.begins()) flights_.erase(number);
  }

  // Starts what an action sends and what another one receives; null: nothing.
  Pending start(const StageAction* sends, const StageAction* receives) {
    std::vector<comm::SentMessage> sent;
    std::vector<comm::ReceivedMessage> received;
    if (sends != nullptr && !(sends->backward ? stage_.begins() : stage_.ends())) {
      model::MicroBatch& m = flight(sends->micro_batch).micro_batch;
      const View v = sends->backward ? m.gradient() : m.hidden();
      sent.push_back({memory_at(v), static_cast<std::int64_t>(v.bytes()), stage_.number + (sends->backward ? -1 : 1)});
      model_.store.mesh().traffic().add(comm::Along::pp, v.dtype, sent.back().bytes);
    }
    if (receives != nullptr && !(receives->backward ? stage_.ends() : stage_.begins())) {
      model::MicroBatch& m = flight(receives->micro_batch).micro_batch;
      const View v = receives->backward ? m.gradient() : m.hidden();
      received.push_back(
          {memory_at(v), static_cast<std::int64_t>(v.bytes()), stage_.number + (receives->backward ? 1 : -1)});
    }
    return start_messages(model_, sent, received);
  }

  // What the message carries that an action sends, and the one that it receives; empty: it sends or receives nothing.
  std::string sent_by(const StageAction& a) const {
    return a.backward ? contents(a, stage_.number, stage_.number - 1) : contents(a, stage_.number, stage_.number + 1);
  }
  std::string received_by(const StageAction& a) const {
    return a.backward ? contents(a, stage_.number + 1, stage_.number) : contents(a, stage_.number - 1, stage_.number);
  }
  std::string contents(const StageAction& a, int from, int to) const {
    return contents_of(stage_, a.backward ? "gradient of micro-batch " : kInput, a.micro_batch + 1, from, to);
  }

  void send(const StageAction& a) {
    Flight& f = flight(a.micro_batch);
    f.sending = start(&a, nullptr);
    f.sent = sent_by(a);
  }

  void finish_send(Flight& f) const { await(model_, f.sending, "send", f.sent); }

  void receive(Pending& request, const StageAction& a) const {
    const std::string text = received_by(a);
    await(model_, request, text.empty() ? "send" : "receive", text);
  }

  ShardedModel& model_;
  const StepPasses& passes_;
  const model::StageRange stage_;
  const bool receives_early_;
  const std::vector<StageAction> actions_;
  std::map<int, Flight> flights_;  // by number
};

}  // namespace

PassTimes run_passes(ShardedModel& model, const StepPasses& passes) { return Passes(model, passes).run(); }

// A pass ends where its result was sent, so that the exchange of a turn has the result of one pass and the input of the
// next one, as one group of messages: in it stage s sends the pass that stage s + 1 receives in the same turn.
void ForwardPasses::exchange(model::MicroBatch* next) {
  const model::StageRange& stage = model_.store.stage();
  std::vector<comm::SentMessage> sent;
  std::vector<comm::ReceivedMessage> received;
  std::string text;
  if (computed_) {
    const View v = computed_->hidden();
    sent.push_back({memory_at(v), static_cast<std::int64_t>(v.bytes()), stage.number + 1});
    text = contents_of(stage, kInput, count_, stage.number, stage.number + 1);
  }
  if (next != nullptr && !stage.begins()) {
    const View v = next->hidden();
    received.push_back({memory_at(v), static_cast<std::int64_t>(v.bytes()), stage.number - 1});
    text = contents_of(stage, kInput, count_ + 1, stage.number - 1, stage.number);
  }
  if (Pending messages = start_messages(model_, sent, received); !sent.empty() || !received.empty())
    await(model_, messages, received.empty() ? "send" : "receive", text);
  computed_.reset();
}

void ForwardPasses::compute(const model::Batch& batch, const std::function<void(model::MicroBatch&)>& head) {
  const model::StageRange& stage = model_.store.stage();
  if (stage.begins()) send();  // before the memory of the next pass is allocated
  model::MicroBatch m(model_.decoder, model_.ctx, model_.engine, model_.store, batch, model::PassKind::inference);
  if (!stage.begins()) exchange(&m);
  ++count_;
  if (stage.begins()) m.forward_embedding();
  m.forward_layers(stage.first, stage.last);
  if (stage.ends())
    head(m);
  else
    computed_.emplace(std::move(m));
}

void ForwardPasses::send() {
  if (computed_) exchange(nullptr);
}

void forward(ShardedModel& model, const model::Batch& batch, const View& losses) {
  ForwardPasses passes(model);
  passes.compute(batch, [&](model::MicroBatch& m) { m.forward_head(losses); });
  passes.send();
}

void logits(ShardedModel& model, const model::Batch& batch, std::int64_t first, const View& out) {
  ForwardPasses passes(model);
  passes.compute(batch, [&](model::MicroBatch& m) { m.forward_logits(first, out); });
  passes.send();
}

}  // namespace fp8::shard
