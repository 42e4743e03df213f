// The rows that experts of this rank compute when ranks share the experts: which rows travel where, in as many passes
// as there is room for, and their order. Private to the decoder.
//   E experts, k of them for each token, G ranks that share them, M rows of each rank, N = k M
#pragma once

#include "layer.h"

namespace fp8::model {

// Rows of all ranks that one of them can hold at a time: those that the settings say, and always all of one expert.
std::int64_t expert_room(const ExpertExchange& exchange, std::int64_t per_token, std::int64_t rows);

// Experts of this rank whose rows are computed together. A rank whose experts need fewer passes than those of another
// has passes without experts.
struct ExpertPass {
  std::int64_t begin = 0, end = 0;     // experts, by their numbers on this rank
  std::vector<std::int64_t> to, from;  // rows for each rank, and from each
  std::vector<std::int64_t> first;     // [end - begin + 1]: the first row of each expert, and the end
  View pack, unpack;                   // i32 [sum of to], [N]: the sent rows, and the place of each row there, or -1
  View order, unorder;                 // i32 [sum of from]: rows that arrive, in the order of experts; and the reverse

  // Number of rows that arrive.
  std::int64_t rows() const { return first.back(); }
};

// The passes of a layer, from the numbers of rows of all ranks by expert, [G, E]. `indices`: i32 memory for the views,
// expert_indices() elements.
std::vector<ExpertPass> plan_passes(const Context& ctx, const ExpertExchange& exchange,
                                    std::span<const std::int32_t> counts, std::int64_t room, const View& indices);

// Numbers of rows by expert that every rank routes evenly, [G, E], for a plan of time: `rows` of each rank, of which
// the experts of this rank get `imbalance` times their share. Without exchange [E].
std::vector<std::int32_t> balanced_counts(const ExpertExchange* exchange, std::int64_t experts, std::int64_t rows,
                                          double imbalance);

// One pass with the most rows, without indices, for a plan of memory.
std::vector<ExpertPass> plan_dry(const ExpertExchange& exchange, std::int64_t per_token, std::int64_t rows);

// Elements of `indices`.
std::int64_t expert_indices(const ExpertExchange& exchange, std::int64_t per_token, std::int64_t rows);

// Sends the rows of a pass, `local` [N, C] in the order of this rank's routes, to the ranks that have their experts;
// those that arrive are stored in the order of experts in `sorted` [rows of the pass, C]. Collective.
void send_rows(const Context& ctx, ExpertExchange& exchange, const ExpertPass& pass, const View& local,
               const View& sorted);

// The reverse: rows of `local` that are not of the pass are unchanged. Collective.
void return_rows(const Context& ctx, ExpertExchange& exchange, const ExpertPass& pass, const View& sorted,
                 const View& local);

}  // namespace fp8::model
