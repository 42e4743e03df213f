/// Timelines in the Trace Event Format, for chrome://tracing and Perfetto. Source: "Trace Event Format", Google, 2016.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::json {

/// Kind of an event.
enum class TraceKind : std::uint8_t {
  bar,      ///< an interval with a duration
  mark,     ///< an instant without a duration
  count,    ///< values drawn as a curve: the arguments
  process,  ///< sets the name of the process; has no time
  thread,   ///< sets the name of the thread; has no time
};

/// One event of a timeline.
struct TraceEvent {
  std::string_view name;            ///< shown on the bar
  std::string_view category;        ///< category for filtering
  std::int64_t process = 0;         ///< a group of lines: a rank, or a run
  std::int64_t thread = 0;          ///< a line in the group
  double begin_us = 0;              ///< microseconds from any origin, the same for all events
  double duration_us = 0;           ///< microseconds
  Object arguments{};               ///< shown when the bar is selected
  TraceKind kind = TraceKind::bar;  ///< kind of the event
};

/// The event as one line without a newline.
std::string trace_line(const TraceEvent& event);

/// A complete file of such lines, in order.
std::string trace_file(const std::vector<std::string>& lines);

/// Text before the first line of a file, between two lines, and after the last, for files that are written
/// incrementally.
inline constexpr std::string_view kTraceBegin = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n",
                                  kTraceBetween = ",\n", kTraceEnd = "\n]}\n";

}  // namespace fp8::json
