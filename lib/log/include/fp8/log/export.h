/// Exports logs as CSV, TensorBoard event files, Prometheus text and Chrome traces. Every function is pure and
/// deterministic. The runs must have been read with Wanted::all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "fp8/log/run.h"

namespace fp8::log {

/// Receives the output in pieces, in order.
using Sink = std::function<void(std::string_view)>;

/// Writes a heading, then one line per step: run, step, tokens, precision, recipe, every metric of any run, eval_loss
/// if a run has evaluations, and of several runs "setting:NAME" for each setting that differs between them. The loss of
/// an evaluation is in the line of its step, or in a line of its own if the log has no record of that step. Numbers
/// round-trip to the same bits; missing values are empty fields. Lines end in a newline; text is quoted where RFC 4180
/// requires it. In names a backslash is doubled, then terminal_safe() escapes control characters, so that a name stays
/// on one line and can be recovered from the field.
void write_csv(std::span<const Run> runs, const Sink& sink);

/// Writes an event file with one scalar per metric and step, tagged with the metric's name, and "eval/loss" for
/// evaluations. The wall time of an event is the time of its record; where the log lacks it, that of the event before
/// plus step_s, from 0. Values are rounded to f32, the type of the format.
/// Source: TensorFlow's record framing (u64 length, masked CRC-32C of it, data, masked CRC-32C) and event.proto.
void write_tensorboard(const Run& run, const Sink& sink);

/// Returns the metrics of the last step of each run as gauges fp8_<metric>{run="..."}, with fp8_step, fp8_tokens,
/// fp8_finished, and fp8_eval_loss and fp8_eval_step of the last evaluation. Names and values are in base units: _s
/// becomes _seconds, _share _ratio, _tflops _flops_per_second; a metric that begins with fp8_ gets no second prefix.
/// The text is read by the text-file collector of node_exporter and by parsers of OpenMetrics. Names are escaped by
/// terminal_safe().
/// Source: Prometheus text format 0.0.4; OpenMetrics 1.0.0.
std::string prometheus(std::span<const Run> runs);

/// Writes a timeline for chrome://tracing and Perfetto, one process per run: bars for steps, waits for data, saves,
/// evaluations and precisions; marks for restarts; curves of loss, gradient norm and tokens/s. Time starts at 0 and is
/// the sum of the logged durations of steps, evaluations and waits for saves; an asynchronous save overlaps the steps.
/// An evaluation without a logged duration becomes a mark. Throws Error when a run with steps has no step durations.
void write_trace(std::span<const Run> runs, const Sink& sink);

/// CRC-32C (Castagnoli) of `bytes`. Source: RFC 3720.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace fp8::log
