// SwiGLU, embedding, bias gradient, addition and conversion on the host. All are bound by memory: one pass, rows in
// parallel.
#include "fp8/ops/elementwise.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "cuda.h"
#include "fp8/ops/norm.h"
#include "row_amax.h"
#include "rows.h"

namespace fp8::ops {
namespace {

using device::DeviceType;

void check_swiglu(const char* op, const View& gate_up, const View& h) {
  need(gate_up.rank == 2 && h.rank == 2 && gate_up.shape[0] == h.shape[0] && gate_up.shape[1] == 2 * h.shape[1], op,
       "gate_up must be twice as wide as the result");
  need(gate_up.dtype == h.dtype, op, "activations of different types");
  need(unit_last_stride(gate_up) && unit_last_stride(h), op, "rows must have unit stride");
}

// Division of views into runs of adjacent elements: equal chunks if all are contiguous, else rows.
struct Runs {
  static constexpr std::int64_t kChunk = 4096;
  bool flat;
  std::int64_t size, columns, count;

  Runs(const View& like, bool all_contiguous)
      : flat(all_contiguous),
        size(like.size()),
        columns(flat ? kChunk : like.shape[static_cast<std::size_t>(like.rank - 1)]),
        count(columns == 0 ? 0 : divide_up(size, columns)) {}
  template <class T>
  T* start(const StridedRows<T>& rows, const View& v, std::int64_t i) const {
    return flat ? static_cast<T*>(v.data) + i * kChunk : rows[i];
  }
  std::int64_t length(std::int64_t i) const { return std::min(columns, size - i * columns); }
};

template <class A, class B>
void convert_run(const A* in, std::int64_t in_step, B* out, std::int64_t out_step, std::int64_t n) {
  if (in_step != 1 || out_step != 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i * out_step] = dtype::from_float<B>(dtype::to_float(in[i * in_step]));
  } else if constexpr (std::is_same_v<B, float>) {
    row_loops<A>().to_f32(in, out, n);
  } else {
    row_loops<A>().to_bf16(in, out, n);
  }
}

void check_ids(const char* op, const View& tokens, std::int64_t limit, std::int32_t allowed) {
  const std::int32_t* ids = tokens.as<std::int32_t>();
  for (std::int64_t i = 0; i < tokens.size(); ++i) {
    if ((ids[i] < 0 || ids[i] >= limit) && ids[i] != allowed) {
      throw Error(std::string(op) + ": token id " + std::to_string(ids[i]) + " is not below " + std::to_string(limit));
    }
  }
}

void check_embedding(const char* op, const View& tokens, const View& table, const View& rows) {
  need(tokens.dtype == DType::i32 && tokens.rank == 1 && tokens.contiguous(), op,
       "tokens must be int32, one dimension");
  need(table.rank == 2 && rows.rank == 2 && rows.shape[0] == tokens.shape[0] && rows.shape[1] == table.shape[1], op,
       "rows and table do not match");
  need(unit_last_stride(table) && unit_last_stride(rows), op, "rows must have unit stride");
}

}  // namespace

void swiglu_forward(const Context& ctx, const View& gate_up, const View& h, const Amax& amax) {
  constexpr const char* kOp = "swiglu";
  need_device(ctx, kOp, gate_up, h);
  check_swiglu(kOp, gate_up, h);
  check_amax(ctx, kOp, amax, 1);
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(gate_up, h), flops_of(h, 4));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::swiglu_forward(ctx, gate_up, h, amax);
  with_float_type(h.dtype, kOp, [&]<class T>() {
    const StridedRows<T> in(gate_up), out(h);
    const std::int64_t n = out.columns();
    const RowLoops<T>& loops = row_loops<T>();
    parallel_for(out.count(), n, [&](std::int64_t i) {
      const T* gate = in[i];
      loops.swiglu(gate, gate + n, out[i], n);
      record_row(amax, 0, out[i], n);
    });
  });
}

void swiglu_backward(const Context& ctx, const View& dh, const View& gate_up, const View& d_gate_up, const Amax& amax) {
  constexpr const char* kOp = "swiglu backward";
  need_device(ctx, kOp, dh, gate_up, d_gate_up);
  check_swiglu(kOp, gate_up, dh);
  check_swiglu(kOp, d_gate_up, dh);
  const int of_up = amax.value.size() == 1 ? 0 : 1;
  check_amax(ctx, kOp, amax, of_up + 1);
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(dh, gate_up, d_gate_up), flops_of(dh, 12));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::swiglu_backward(ctx, dh, gate_up, d_gate_up, amax);
  with_float_type(dh.dtype, kOp, [&]<class T>() {
    const StridedRows<T> in(gate_up), upstream(dh), out(d_gate_up);
    const std::int64_t n = upstream.columns();
    const RowLoops<T>& loops = row_loops<T>();
    parallel_for(upstream.count(), n, [&](std::int64_t i) {
      const T* gate = in[i];
      T* d_gate = out[i];
      loops.swiglu_gradients(upstream[i], gate, gate + n, d_gate, d_gate + n, n);
      record_row(amax, 0, d_gate, n);
      record_row(amax, of_up, d_gate + n, n);
    });
  });
}

void embedding_forward(const Context& ctx, const View& tokens, const View& table, const View& out,
                       const VocabularyPart& part) {
  constexpr const char* kOp = "embedding";
  need_device(ctx, kOp, tokens, table, out);
  check_embedding(kOp, tokens, table, out);
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(tokens) + 2 * bytes_of(out));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::embedding_forward(ctx, tokens, table, out, part);
  if (!part.part) check_ids(kOp, tokens, table.shape[0], 0);
  const std::int32_t* ids = tokens.as<std::int32_t>();
  with_float_type(table.dtype, kOp, [&]<class A>() {
    with_float_type(out.dtype, kOp, [&]<class B>() {
      const StridedRows<A> in(table);
      const StridedRows<B> rows(out);
      parallel_for(rows.count(), rows.columns(), [&](std::int64_t i) {
        const std::int64_t id = ids[i] - part.first;
        if (id >= 0 && id < in.count())
          convert_run(in[id], 1, rows[i], 1, rows.columns());
        else
          std::fill_n(rows[i], rows.columns(), dtype::from_float<B>(0.0f));
      });
    });
  });
}

static void embedding_backward_on_device(const Context& ctx, const View& tokens, const View& dout, const View& dtable,
                                         const VocabularyPart& part) {
  need(ctx.arena != nullptr, "embedding backward", "needs an arena");
  const device::Scope scope(*ctx.arena);
  const View scratch = tensor::allocate(ctx, DType::i32, {3, tokens.shape[0]}, "scratch");
  if (!ctx.dry) cuda::embedding_backward(ctx, tokens, dout, dtable, part, scratch);
}

// Each thread processes slices of columns, for all tokens in order: no sorting, no atomics, the same sums for any
// number of threads.
void embedding_backward(const Context& ctx, const View& tokens, const View& dout, const View& dtable,
                        const VocabularyPart& part) {
  constexpr const char* kOp = "embedding backward";
  constexpr std::int64_t kSlice = 64;
  need_device(ctx, kOp, tokens, dout, dtable);
  check_embedding(kOp, tokens, dtable, dout);
  need(dtable.dtype == DType::f32, kOp, "the gradient must be float32");
  // On a device the tokens are sorted first: zeros, ranks and an order, which have eight more accesses to each token.
  const device::Timer timer(ctx, device::Work::elementwise, kOp,
                            bytes_of(dout) + 8 * static_cast<double>(dout.size()) + 9 * bytes_of(tokens),
                            flops_of(dout, 1), 4);
  if (ctx.device == DeviceType::cuda) return embedding_backward_on_device(ctx, tokens, dout, dtable, part);
  if (ctx.dry) return;
  if (!part.part) check_ids(kOp, tokens, dtable.shape[0], 0);
  const std::int32_t* ids = tokens.as<std::int32_t>();
  with_float_type(dout.dtype, kOp, [&]<class T>() {
    const StridedRows<T> in(dout);
    const StridedRows<float> table(dtable);
    const RowLoops<T>& loops = row_loops<T>();
    const std::int64_t n = in.columns(), count = in.count();
    const std::int64_t slice = std::max(kSlice, round_up(n / threads_for(n * count), kSlice));
    parallel_for(divide_up(n, slice), slice * count, [&](std::int64_t s) {
      const std::int64_t begin = s * slice, end = std::min(n, begin + slice);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t id = ids[i] - part.first;
        if (id >= 0 && id < table.count()) loops.add_to(in[i] + begin, table[id] + begin, end - begin);
      }
    });
  });
}

void bias_backward(const Context& ctx, const View& dy, const View& db) {
  constexpr const char* kOp = "bias backward";
  need_device(ctx, kOp, dy, db);
  need(dy.rank == 2 && unit_last_stride(dy), kOp, "dy must have 2 dimensions, the last with unit stride");
  need(db.rank == 1 && db.dtype == DType::f32 && db.shape[0] == dy.shape[1] && db.contiguous(), kOp,
       "db must be float32, one for each column");
  need(ctx.arena != nullptr, kOp, "needs an arena");
  const std::int64_t n = dy.shape[1];
  const RowBlocks blocks(dy.shape[0]);
  const std::int64_t partials = ctx.device == DeviceType::cuda ? cuda::column_blocks(dy.shape[0], n) : blocks.count;
  const device::Scope scope(*ctx.arena);
  const View partial = tensor::allocate(ctx, DType::f32, {partials, n}, "scratch");
  if (n == 0) return;
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(dy) + 2 * bytes_of(partial, db),
                            flops_of(dy, 1), 2);
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::bias_backward(ctx, dy, db, partial);
  float* sums = partial.as<float>();
  with_float_type(dy.dtype, kOp, [&]<class T>() {
    const StridedRows<T> in(dy);
    const RowLoops<T>& loops = row_loops<T>();
    parallel_for(blocks.count, blocks.each * n, [&](std::int64_t b) {
      float* sum = sums + b * n;
      std::fill(sum, sum + n, 0.0f);
      for (std::int64_t i = blocks.begin(b); i < blocks.end(b); ++i) loops.add_to(in[i], sum, n);
    });
  });
  add_partial_sums(sums, blocks.count, n, db.as<float>());
}

void add(const Context& ctx, const View& a, const View& b, const View& out) {
  constexpr const char* kOp = "add";
  need_device(ctx, kOp, a, b, out);
  need(same_shape(a, b) && same_shape(a, out) && a.rank >= 1, kOp, "shapes differ");
  need(a.dtype == b.dtype && a.dtype == out.dtype, kOp, "activations of different types");
  need(unit_last_stride(a) && unit_last_stride(b) && unit_last_stride(out), kOp, "rows must have unit stride");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(a, b, out), flops_of(out, 1));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::add(ctx, a, b, out);
  with_float_type(a.dtype, kOp, [&]<class T>() {
    const StridedRows<T> a_rows(a), b_rows(b), out_rows(out);
    const Runs runs(out, a.contiguous() && b.contiguous() && out.contiguous());
    const RowLoops<T>& loops = row_loops<T>();
    parallel_for(runs.count, runs.columns, [&](std::int64_t i) {
      loops.add(runs.start(a_rows, a, i), runs.start(b_rows, b, i), runs.start(out_rows, out, i), runs.length(i));
    });
  });
}

void sum_terms(const Context& ctx, const View& terms, const View& out) {
  constexpr const char* kOp = "sum terms";
  need_device(ctx, kOp, terms, out);
  need(terms.rank == 2 && terms.shape[0] > 0 && terms.size() == terms.shape[0] * out.size(), kOp, "shapes differ");
  need(terms.dtype == DType::bf16 && out.dtype == DType::f32, kOp, "terms must be bf16 and the sum f32");
  need(terms.contiguous() && out.contiguous(), kOp, "not contiguous");
  if (out.size() == 0) return;
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(terms, out), flops_of(terms, 1));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::sum_terms(ctx, terms, out);
  const std::int64_t count = terms.shape[0], n = out.size();
  const Runs runs(out, true);
  parallel_for(runs.count, runs.columns, [&](std::int64_t i) {
    std::array<float, Runs::kChunk> term;
    const std::int64_t length = runs.length(i);
    const dtype::Bf16* from = terms.as<const dtype::Bf16>() + i * Runs::kChunk;
    float* to = out.as<float>() + i * Runs::kChunk;
    row_loops<dtype::Bf16>().to_f32(from, to, length);
    for (std::int64_t t = 1; t < count; ++t) {
      row_loops<dtype::Bf16>().to_f32(from + t * n, term.data(), length);
      row_loops<float>().add(to, term.data(), to, length);
    }
  });
}

void sum_partials(const Context& ctx, const View& terms, const View& bias, const View& out) {
  constexpr const char* kOp = "sum partials";
  need_device(ctx, kOp, terms, bias, out);
  need(terms.rank == 3 && terms.shape[0] > 0 && out.rank == 2 && terms.size() == terms.shape[0] * out.size(), kOp,
       "shapes differ");
  need(terms.dtype == out.dtype && (bias.empty() || (bias.dtype == out.dtype && bias.size() == out.shape[1])), kOp,
       "terms, bias and sum differ in type or columns");
  need(terms.contiguous() && out.contiguous() && (bias.empty() || bias.contiguous()), kOp, "not contiguous");
  if (out.size() == 0) return;
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(terms, out), flops_of(terms, 1));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::sum_partials(ctx, terms, bias, out);
  const std::int64_t count = terms.shape[0], n = out.size(), columns = out.shape[1];
  with_float_type(out.dtype, kOp, [&]<class T>() {
    parallel_for(out.shape[0], columns * count, [&](std::int64_t i) {
      std::array<float, Runs::kChunk> sum, term;
      for (std::int64_t begin = 0; begin < columns; begin += Runs::kChunk) {
        const std::int64_t length = std::min(Runs::kChunk, columns - begin);
        const auto add = [&](const T* from) {
          row_loops<T>().to_f32(from, term.data(), length);
          row_loops<float>().add(sum.data(), term.data(), sum.data(), length);
        };
        const T* const from = terms.as<const T>() + i * columns + begin;
        row_loops<T>().to_f32(from, sum.data(), length);
        for (std::int64_t t = 1; t < count; ++t) add(from + t * n);
        if (!bias.empty()) add(bias.as<const T>() + begin);
        convert_run(sum.data(), 1, out.as<T>() + i * columns + begin, 1, length);
      }
    });
  });
}

void copy(const Context& ctx, const View& in, const View& out) {
  constexpr const char* kOp = "copy";
  need_device(ctx, kOp, in, out);
  const bool flat = in.contiguous() && out.contiguous();
  need(in.rank >= 1 && out.rank >= 1 && in.size() == out.size() && (flat || same_shape(in, out)), kOp, "shapes differ");
  const device::Timer timer(ctx, device::Work::elementwise, kOp, bytes_of(in, out));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::copy(ctx, in, out);
  with_float_type(in.dtype, kOp, [&]<class A>() {
    with_float_type(out.dtype, kOp, [&]<class B>() {
      const StridedRows<A> from(in);
      const StridedRows<B> to(out);
      const Runs runs(out, flat);
      const auto last = static_cast<std::size_t>(out.rank - 1);
      const std::int64_t in_step = flat ? 1 : in.stride[last], out_step = flat ? 1 : out.stride[last];
      parallel_for(runs.count, runs.columns, [&](std::int64_t i) {
        convert_run(runs.start(from, in, i), in_step, runs.start(to, out, i), out_step, runs.length(i));
      });
    });
  });
}

void zero(const Context& ctx, const View& x) {
  need_device(ctx, "zero", x);
  need(x.contiguous(), "zero", "not contiguous");
  const device::Timer timer(ctx, device::Work::elementwise, "zero", bytes_of(x));
  if (ctx.dry) return;
  if (ctx.device == DeviceType::cuda) return cuda::zero(ctx, x);
  constexpr std::int64_t kPiece = 1 << 18;
  const auto bytes = static_cast<std::int64_t>(x.bytes());
  parallel_for(divide_up(bytes, kPiece), kPiece, [&](std::int64_t i) {
    std::memset(static_cast<std::byte*>(x.data) + i * kPiece, 0,
                static_cast<std::size_t>(std::min(kPiece, bytes - i * kPiece)));
  });
}

}  // namespace fp8::ops
