/// Timelines that chrome://tracing and Perfetto open: the Trace Event Format.
/// Source: "Trace Event Format", Google, 2016.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::json {

/// What an event is.
enum class TraceKind : std::uint8_t {
  bar,      ///< something that takes time
  mark,     ///< a moment; it has no duration
  count,    ///< values that are drawn as a curve: its arguments
  process,  ///< says what its process is called: the name; at no time
  thread,   ///< says what its thread is called: the name; at no time
};

/// One event of a timeline.
struct TraceEvent {
  std::string_view name;            ///< shown on the bar
  std::string_view category;        ///< to filter by
  std::int64_t process = 0;         ///< a group of lines: a rank, or a run
  std::int64_t thread = 0;          ///< a line in it
  double begin_us = 0;              ///< microseconds from any origin, the same for all events
  double duration_us = 0;           ///< microseconds
  Object arguments{};               ///< shown when the bar is chosen
  TraceKind kind = TraceKind::bar;  ///< what it is
};

/// The event as one line without a newline.
std::string trace_line(const TraceEvent& event);

/// A whole file of such lines, in their order.
std::string trace_file(const std::vector<std::string>& lines);

/// What comes before the first line of a file, between two, and after the last, for files that are written bit by bit.
inline constexpr std::string_view kTraceBegin = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n",
                                  kTraceBetween = ",\n", kTraceEnd = "\n]}\n";

}  // namespace fp8::json
