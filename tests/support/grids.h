/// A launcher that records the grids of launches and runs nothing, for tests of grids that are too large to run.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "cuda_shim.h"

namespace fp8::test {

/// The grids of all launches so far. Copies share the list.
class Grids {
 public:
  /// `all` outlives the launcher.
  explicit Grids(std::vector<dim3>& all) : all_(&all) {}
  /// The number of an H100.
  int multiprocessors() const { return 132; }
  /// Expects a grid that CUDA allows, at most 2^31 - 1 blocks along x and 65,535 along y and z, and records it.
  template <class Kernel, class... A>
  void operator()(const char* name, dim3 grid, dim3, Kernel*, A&&...) const {
    EXPECT_LE(grid.x, 0x7FFFFFFFu) << name;
    EXPECT_LE(grid.y, 65535u) << name;
    EXPECT_LE(grid.z, 65535u) << name;
    all_->push_back(grid);
  }

 private:
  std::vector<dim3>* all_;
};

}  // namespace fp8::test
