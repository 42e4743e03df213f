/// What HostBf16::detect finds.
#pragma once

namespace fp8::gemm {

/// Whether this CPU multiplies bf16 as it is (AVX-512 BF16), so that HostBf16::detect means native.
bool native_host_bf16();

}  // namespace fp8::gemm
