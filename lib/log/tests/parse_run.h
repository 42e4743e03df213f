/// Parses a log in memory in one piece, without the threads of log::read_run(), for comparison and for the fuzz target.
#pragma once

#include <string>
#include <string_view>

#include "collector.h"
#include "fp8/log/run.h"
#include "piece.h"

namespace fp8::log {

/// The run in `text`; `path` is its name in the run and in errors.
inline Run parse_run(std::string_view text, const std::string& path, const Wanted& wanted) {
  Collector collector(path, path);
  collector.take(read_piece(text, wanted));
  collector.finish();
  return collector.release();
}

}  // namespace fp8::log
