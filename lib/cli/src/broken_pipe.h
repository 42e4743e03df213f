/// How Output tells run() that the reader of standard output went away. Not a std::exception, so that no handler of
/// errors on the way takes it for one.
#pragma once

namespace fp8::cli {

/// Thrown by Output, caught by run().
struct BrokenPipe {};

}  // namespace fp8::cli
