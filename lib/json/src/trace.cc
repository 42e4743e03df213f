// Events as members of one JSON object.
#include "fp8/json/trace.h"

#include "fp8/json/json.h"

namespace fp8::json {

std::string trace_line(const TraceEvent& event) {
  const bool naming = event.kind == TraceKind::process || event.kind == TraceKind::thread;
  Object line;
  line.set("name", naming ? event.kind == TraceKind::process ? "process_name" : "thread_name" : event.name);
  if (!naming) line.set("cat", event.category);
  line.set("ph", naming ? "M" : event.kind == TraceKind::mark ? "i" : event.kind == TraceKind::count ? "C" : "X");
  line.set("pid", event.process);
  line.set("tid", event.thread);
  if (!naming) line.set("ts", event.begin_us);
  if (event.kind == TraceKind::bar) line.set("dur", event.duration_us);
  if (event.kind == TraceKind::mark) line.set("s", "p");  // across the process
  line.set("args", naming ? object({{"name", event.name}}) : Value(event.arguments));
  return dump(line);
}

std::string trace_file(const std::vector<std::string>& lines) {
  std::string text(kTraceBegin);
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : std::string(kTraceBetween)) + lines[i];
  return text.append(kTraceEnd);
}

}  // namespace fp8::json
