/// GEMMs on the host: the oneDNN calls of each GEMM and their scratch memory; emulated accumulation of tensor cores is
/// in tensor_core.h. Operands have been validated by engine.cc, which also counts. Private to this crate.
#pragma once

#include <cstddef>

#include "blocks.h"
#include "epilogue.h"
#include "fp8/gemm/gemm.h"
#include "row_products.h"
#include "scratch.h"
#include "tensor_core.h"
#include "varying.h"

namespace fp8::gemm {

/// GEMMs of an Engine on the host.
class HostGemm {
 public:
  /// HostBf16::detect selects by the CPU.
  HostGemm(HostBf16 bf16, HostSums sums);
  /// Runs one call; if `dry`, only makes its plans and records its scratch.
  void run(bool dry, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);
  /// Whether the number of rows differs between calls, see VaryingRows.
  void vary_rows(bool vary) { rows_vary_ = vary; }
  /// Bytes of scratch that the calls so far need.
  std::size_t scratch_bytes() const;

 private:
  void run_dense(bool dry, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options);
  Operand dequantized(bool dry, const Operand& o, bool columns, Scratch& scratch);
  View upcast(bool dry, const View& v, Scratch& scratch);
  View contiguous_row(bool dry, const View& v, Scratch& scratch);
  void multiply(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void multiply_once(bool dry, const View& a, const View& b, const View& c, bool accumulate);
  void run_tiles(bool dry, const View& a, const View& b, const View& c, const Epilogue& epilogue);

  bool upcast_, fixed_, rows_vary_ = false;
  Varying varying_ = Varying::none;  // the extent of this call that varies
  PlannedGemm planned_;
  RowProducts row_products_;
  TensorCoreGemm tensor_core_{tensor_core_kernels()};
  Scratch sums_{device::DeviceType::host}, a_{device::DeviceType::host}, b_{device::DeviceType::host},
      dense_a_{device::DeviceType::host}, dense_b_{device::DeviceType::host};
};

}  // namespace fp8::gemm
