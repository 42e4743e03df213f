// 1F1B. No rank waits for ever: a receive waits for one message, which the other stage sends after an action that does
// not depend on this rank's later actions, because stages, schedule and the order of backward are the same everywhere
// (model/pipeline.h); sends are started and do not block. On the host receives and sends are separate and go on while a
// rank waits for any of them. On a GPU the messages of a group of ranks run in the order in which a rank starts them,
// and each occupies its place until the other rank runs its part. There, what an action sends and what the next one
// receives are one group of messages: in the steady state both are of the same neighbour, whose group has the same two
// messages; before and after it, the groups of stages s and s + 1 that have a message in common follow each other along
// the stages. Schedule.GroupedExchangesCannotDeadlock tries this order with stages that are late at random.
#include "fp8/shard/pipeline.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "fp8/base/clock.h"
#include "fp8/device/profile.h"

namespace fp8::shard {
namespace {

using model::StageAction;

std::byte* memory_at(const View& v) { return static_cast<std::byte*>(v.data); }

// A micro-batch between the beginning of its forward and the end of its backward on this stage.
struct Flight {
  Flight(ShardedModel& model, const StepPasses& passes, int number)
      : memory(model.arena), micro_batch(make(model, passes, number)) {}

  device::PooledMemory memory;  // memory of the batch
  std::int64_t rows = 0;
  model::MicroBatch micro_batch;
  comm::Request sending;  // of what it has sent last

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
        ranks_(model.store.mesh().stages()),
        receives_early_(model.ctx.device == device::DeviceType::host),
        actions_(model::stage_schedule(stage_.stages, stage_.number, passes.count)) {}

  PassTimes run() {
    const Clock::time_point first = Clock::now();
    PassTimes times;
    comm::Request arriving = start(nullptr, at(0));
    for (std::size_t k = 0; k < actions_.size(); ++k) {
      comm::Request next;
      if (receives_early_) next = start(nullptr, at(k + 1));
      receive(arriving, actions_[k]);
      const Clock::time_point begun = Clock::now();
      if (actions_[k].backward)
        backward(actions_[k].micro_batch);
      else
        forward(actions_[k].micro_batch);
      times.busy += seconds_since(begun);
      if (receives_early_)
        flight(actions_[k].micro_batch).sending = start(at(k), nullptr);
      else
        next = start(at(k), at(k + 1));
      if (actions_[k].backward) retire(actions_[k].micro_batch);
      arriving = std::move(next);
    }
    await(arriving, "send");
    for (auto& [number, flight] : flights_) await(flight.sending, "send");
    flights_.clear();
    model_.store.set_dropout({});
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
    Flight& f = flight(number);
    model_.store.set_dropout(passes_.position(number));
    if (stage_.begins()) f.micro_batch.forward_embedding();
    f.micro_batch.forward_layers(stage_.first, stage_.last);
  }

  void backward(int number) {
    Flight& f = flight(number);
    await(f.sending, "send");  // of the hidden state, whose memory is freed now
    model_.store.begin_micro_batch(number, passes_.count);
    model_.store.set_dropout(passes_.position(number));
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
      await(flight(number - 1).sending, "send");
      flights_.erase(number - 1);
    }
    if (stage_.begins()) flights_.erase(number);
  }

  // Starts what an action sends and what another one receives; null: nothing.
  comm::Request start(const StageAction* sends, const StageAction* receives) {
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
    if ((sent.empty() && received.empty()) || model_.ctx.dry) return {};
    return ranks_.start_messages(sent, received);
  }

  // Waits for what an action receives.
  void receive(comm::Request& request, const StageAction& a) const {
    if (model_.ctx.dry || (a.backward ? stage_.ends() : stage_.begins())) return await(request, "send");
    watchdog::ProgressTable& progress = ranks_.progress();
    progress.set_contents((a.backward ? "gradient of micro-batch " : "input of micro-batch ") +
                          std::to_string(a.micro_batch + 1) + " from stage " +
                          std::to_string(stage_.number + (a.backward ? 1 : -1)) + " to stage " +
                          std::to_string(stage_.number));
    await(request, "receive");
    progress.set_contents("");
  }

  void await(comm::Request& request, const char* name) const {
    if (model_.ctx.dry || stage_.stages == 1) return;
    const device::Timer timer(model_.ctx, device::Work::communication, name, 0);
    request.wait();
  }

  ShardedModel& model_;
  const StepPasses& passes_;
  const model::StageRange stage_;
  comm::Communicator& ranks_;
  const bool receives_early_;
  const std::vector<StageAction> actions_;
  std::map<int, Flight> flights_;  // by number
};

}  // namespace

PassTimes run_passes(ShardedModel& model, const StepPasses& passes) { return Passes(model, passes).run(); }

void forward(ShardedModel& model, const model::Batch& batch, const View& losses) {
  const model::StageRange& stage = model.store.stage();
  comm::Communicator& ranks = model.store.mesh().stages();
  model::MicroBatch m(model.decoder, model.ctx, model.engine, model.store, batch, model::PassKind::inference);
  const bool talks = !model.ctx.dry;
  if (stage.begins()) {
    m.forward_embedding();
  } else if (const View in = m.hidden(); talks) {
    ranks.start_receive(memory_at(in), static_cast<std::int64_t>(in.bytes()), stage.number - 1).wait();
  }
  m.forward_layers(stage.first, stage.last);
  if (stage.ends()) {
    m.forward_head(losses);
  } else if (const View out = m.hidden(); talks) {
    ranks.start_send(memory_at(out), static_cast<std::int64_t>(out.bytes()), stage.number + 1).wait();
  }
}

}  // namespace fp8::shard
