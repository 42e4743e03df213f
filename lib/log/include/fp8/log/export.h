/// Logs in the formats of others: CSV, TensorBoard's event files, Prometheus' text, Chrome's traces. All are derived;
/// the log is the truth. Every function is pure and deterministic. Runs were read with Wanted::all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "fp8/log/run.h"

namespace fp8::log {

/// Takes a piece of the output; pieces come in order.
using Sink = std::function<void(std::string_view)>;

/// A heading, then a line a step: run, step, tokens, precision, recipe and every metric of any run. Numbers read back
/// to the same bits; what is missing is empty. Lines end in a newline; text is quoted where it needs it (RFC 4180).
void write_csv(std::span<const Run> runs, const Sink& sink);

/// An event file with a scalar for each metric of each step, under the metric's name, and "eval/loss" for evaluations.
/// The wall time of an event is the sum of step_s so far, from 0. Values are rounded to f32, as the format has it.
/// Source: TensorFlow's record framing (u64 length, masked CRC-32C of it, data, masked CRC-32C) and event.proto.
void write_tensorboard(const Run& run, const Sink& sink);

/// Metrics of the last step of each run as gauges fp8_<metric>{run="..."}, with fp8_step, fp8_tokens and
/// fp8_finished. For the text-file collector of node_exporter.
std::string prometheus(std::span<const Run> runs);

/// A timeline for chrome://tracing and Perfetto: a process a run; in it bars for steps, the waiting for data in them,
/// saves, evaluations and precisions, marks where the run was started again, and curves of loss, gradient norm and
/// tokens/s. Time is the sum of what the log says steps, evaluations and waiting for saves took, from 0; a save in the
/// background lies beside the steps. An evaluation whose time the log does not say is a mark.
/// Throws Error when a run with steps does not say how long they took.
void write_trace(std::span<const Run> runs, const Sink& sink);

/// CRC-32C (Castagnoli) of `bytes`. Source: RFC 3720.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace fp8::log
