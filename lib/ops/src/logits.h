/// Checks of a block of logits and of what belongs to its rows. Private to this crate.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "rows.h"

namespace fp8::ops {

/// Throws Error unless logits are rows, and the results of rows are f32, contiguous, and so many for each row.
inline void check_logits(const char* op, const View& logits, std::initializer_list<const View*> of_rows) {
  need(logits.rank == 2 && logits.shape[1] > 0 && unit_last_stride(logits), op,
       "logits must have 2 dimensions, the last with unit stride");
  for (const View* v : of_rows)
    need(v->dtype == DType::f32 && v->size() % std::max<std::int64_t>(logits.shape[0], 1) == 0 && v->contiguous(), op,
         "results of rows must be float32");
}

/// Throws Error unless there is a target for each row.
inline void check_targets(const char* op, const View& logits, const View& targets) {
  need(targets.dtype == DType::i32 && targets.size() == logits.shape[0] && targets.contiguous(), op,
       "targets must be int32, one for each row");
}

}  // namespace fp8::ops
