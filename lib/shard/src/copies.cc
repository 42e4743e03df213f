// One exchange for all parameters that the same ranks have, and one for a tied embedding.
#include <algorithm>

#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/shard/reduce.h"
#include "view_bytes.h"

namespace fp8::shard {

using tensor::allocate;

CopySums::CopySums(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own)
    : mesh_(mesh), layout_(layout), own_(own) {
  if (!layout.options().training) return;
  for (const ParameterShard& o : own.parameters) {
    const model::Parameter& p = layout.parameter(o.number);
    if (!p.trainable || o.rows.count() == 0) continue;
    if (p.role == model::ParameterRole::embedding && layout.tied_apart()) {
      tied_ = o.gradient.reshaped({o.gradient.size()});
      tied_terms_ = allocate(ctx, DType::f32, {o.gradient.size()}, "gradient buffers");
    }
    if (p.copies == 1) continue;
    auto found = std::ranges::find(copies_, p.copies, &Copies::ranks);
    if (found == copies_.end()) found = copies_.insert(found, {p.copies, {}, {}, {}});
    found->numbers.push_back(o.number);
  }
  for (Copies& copies : copies_) {
    std::int64_t n = 0;
    for (const int number : copies.numbers) n += own.of(number).gradient.size();
    copies.sent = allocate(ctx, DType::f32, {1, n}, "gradient buffers");
    copies.terms = allocate(ctx, DType::f32, {copies.ranks, 1, n}, "gradient buffers");
  }
}

void CopySums::add(const Context& ctx) const {
  for (const Copies& copies : copies_) add_copies(ctx, copies);
  if (!tied_.empty()) add_tied(ctx);
}

// Adds the gradients of parameters of which each rank of tensor parallelism has seen a part of the rows or of the
// outputs, in the order of these ranks.
void CopySums::add_copies(const Context& ctx, const Copies& copies) const {
  comm::Communicator& group = mesh_.tensor();
  const auto each = [&](const auto& body) {
    std::int64_t at = 0;
    for (const int number : copies.numbers) {
      const View& gradient = own_.of(number).gradient;
      const View flat = gradient.reshaped({1, gradient.size()});
      body(flat, copies.sent.columns(at, at + gradient.size()));
      at += gradient.size();
    }
  };
  each([&](const View& gradient, const View& place) { ops::copy(ctx, gradient, place); });
  const int first = group.rank() / copies.ranks * copies.ranks;
  const auto bytes = static_cast<std::int64_t>(copies.sent.bytes());
  {
    const device::Timer timer(ctx, comm::exchange_span("all-to-all", device::ExchangeKind::message, group,
                                                       static_cast<double>(bytes * (copies.ranks - 1))));
    // Each of these ranks gets the same values.
    std::vector<comm::SentMessage> sent;
    std::vector<comm::ReceivedMessage> received;
    for (int r = first; r < first + copies.ranks; ++r) {
      std::byte* const to = memory_at(copies.terms.rows(r - first, r - first + 1));
      if (r == group.rank()) {
        device::copy_bytes(ctx, to, ctx.device, copies.sent.data, ctx.device, copies.sent.bytes());
        continue;
      }
      sent.push_back({bytes_at(copies.sent), bytes, r});
      received.push_back({to, bytes, r});
    }
    mesh_.traffic().add(comm::Along::tp, copies.sent.dtype, bytes * (copies.ranks - 1));
    if (!ctx.dry) group.start_messages(sent, received).wait();
  }
  ops::sum_partials(ctx, copies.terms, {}, copies.sent);
  each([&](const View& gradient, const View& place) { ops::copy(ctx, place, gradient); });
}

// The first stage has the gradient of a tied embedding as an embedding, the last one that as a head.
void CopySums::add_tied(const Context& ctx) const {
  {
    const device::Timer timer(ctx, comm::exchange_span("sum of tied", device::ExchangeKind::message, mesh_.stages(),
                                                       tensor::bytes_of(tied_)));
    const auto bytes = static_cast<std::int64_t>(tied_.bytes());
    const int other = layout_.stage().begins() ? layout_.stage().stages - 1 : 0;
    const comm::SentMessage sent{bytes_at(tied_), bytes, other};
    const comm::ReceivedMessage received{memory_at(tied_terms_), bytes, other};
    if (!ctx.dry) mesh_.stages().start_messages(std::span(&sent, 1), std::span(&received, 1)).wait();
    mesh_.traffic().add(comm::Along::pp, tied_.dtype, bytes);
  }
  ops::add(ctx, tied_, tied_terms_, tied_);
}

}  // namespace fp8::shard
