/// Which blocks of launches run in cuda_shim.h, and the grids of these launches, for tests that count launches or have
/// grids that are too large to run. A test that calls kernels through functions of libraries needs only this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fp8::shim {

/// The blocks of a grid that run. With `all` the device has 3 multiprocessors, so that tests cover grids limited by
/// their number. With `last` it has 2^20, so that the last blocks process their own part of the data alone. With `none`
/// it has the 132 of an H100; launches are checked against CUDA's limits, and work() does not count them.
enum class Blocks : std::uint8_t { all, last, none };

/// The blocks of a launch.
struct Grid {
  unsigned x, y, z;
};

/// While an object exists, launches run these blocks, and their grids are recorded. The newest object counts.
class Launches {
 public:
  /// With Blocks::last, the last `count` blocks run, or all blocks of a smaller grid.
  explicit Launches(Blocks run = Blocks::all, std::size_t count = 1);
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;
  ~Launches();
  /// The grids of all launches so far, in order.
  const std::vector<Grid>& grids() const { return grids_; }

 private:
  friend class Recorder;
  Blocks run_;
  std::size_t count_;
  mutable std::vector<Grid> grids_;  // tests have constant objects
  const Launches* outer_;
};

}  // namespace fp8::shim
