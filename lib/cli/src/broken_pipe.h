/// Signals from Output to run() that the reader of standard output has closed the pipe. Not a std::exception, so that
/// no error handler in between catches it.
#pragma once

namespace fp8::cli {

/// Thrown by Output, caught by run().
struct BrokenPipe {};

}  // namespace fp8::cli
