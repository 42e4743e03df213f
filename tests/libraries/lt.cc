// A stand-in for cuBLASLt: computes on a stream of the stand-in for the runtime what is asked, and refuses what the
// library refuses by its manual ("cublasLtMatmul()", "Tensor Core Usage", "Narrow Precision Data Types Usage") or what
// this project does not use. FP8_CUBLASLT_VERSION is its version, such as 120800, which is too old;
// FP8_CUBLASLT_REFUSES=<kind>, where the kind is rows, blocks or all, makes it one without kernels for these scales;
// row_calls makes it one that proposes kernels with row scales and then refuses the calls, and fp8_calls one that does
// so with any scales; narrow makes it one without kernels for FP8 results whose rows, here columns, are not multiples
// of 16; groups makes it one without grouped GEMMs, and group_calls one that refuses calls of those that it has
// proposed; other_rows makes it one that refuses kernels for other extents than those for which it has proposed them,
// where it takes fewer columns of C and a shorter contraction otherwise. With FP8_CUBLASLT_TELL=1 each process tells at
// its end how many grouped and how many single GEMMs it has computed, and how many kernels it has proposed for these.
#include <cublasLt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "cublaslt_names.h"
#include "lt_product.h"
#include "runtime.h"

struct cublasLtContext {
  int capability = 0;
};

namespace {

using fp8::lt::Matrix;
using fp8::lt::Product;

constexpr std::size_t kWorkspaceUsed = 4096;
// Attributes of layouts that the headers of CUDA 12.9 lack.
constexpr int kBatchMode = 8, kRowsArray = 9, kColumnsArray = 10, kStridesArray = 11;
constexpr std::int32_t kGrouped = 2;  // CUBLASLT_BATCH_MODE_GROUPED

int number_of(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}
bool refuses(const std::string& kind) {
  const char* const text = std::getenv("FP8_CUBLASLT_REFUSES");
  return text != nullptr && (text == kind || text == std::string("all"));
}

// Attributes of an object: their sizes are those of the manual, their values in the low bytes.
class Attributes {
 public:
  explicit Attributes(std::map<int, std::size_t> sizes) : sizes_(std::move(sizes)) {}
  cublasStatus_t set(int attribute, const void* value, std::size_t bytes) {
    const auto known = sizes_.find(attribute);
    if (known == sizes_.end() || value == nullptr || known->second != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&values_[attribute], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  cublasStatus_t get(int attribute, void* value, std::size_t bytes, std::size_t* written) const {
    const auto known = sizes_.find(attribute);
    if (known == sizes_.end() || known->second != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    const std::uint64_t of = as<std::uint64_t>(attribute);
    std::memcpy(value, &of, bytes);
    if (written != nullptr) *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
  }
  template <class T>
  T as(int attribute) const {
    T value{};
    if (const auto found = values_.find(attribute); found != values_.end())
      std::memcpy(&value, &found->second, sizeof value);
    return value;
  }

 private:
  std::map<int, std::size_t> sizes_;
  std::map<int, std::uint64_t> values_;
};

Attributes operation() {
  std::map<int, std::size_t> sizes{{CUBLASLT_MATMUL_DESC_TRANSA, 4},          {CUBLASLT_MATMUL_DESC_TRANSB, 4},
                                   {CUBLASLT_MATMUL_DESC_EPILOGUE, 4},        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8},
                                   {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4},  {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 8},
                                   {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 8}, {CUBLASLT_MATMUL_DESC_FAST_ACCUM, 1},
                                   {CUBLASLT_MATMUL_DESC_POINTER_MODE, 4}};
  sizes[CUBLASLT_MATMUL_DESC_A_SCALE_MODE] = sizes[CUBLASLT_MATMUL_DESC_B_SCALE_MODE] = 4;
  Attributes made(sizes);
  const std::int32_t same = -1, plain = CUBLASLT_EPILOGUE_DEFAULT;
  (void)made.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &same, sizeof same);
  (void)made.set(CUBLASLT_MATMUL_DESC_EPILOGUE, &plain, sizeof plain);
  return made;
}
Attributes layout() {
  return Attributes({{CUBLASLT_MATRIX_LAYOUT_TYPE, 4},
                     {CUBLASLT_MATRIX_LAYOUT_ROWS, 8},
                     {CUBLASLT_MATRIX_LAYOUT_COLS, 8},
                     {CUBLASLT_MATRIX_LAYOUT_LD, 8},
                     {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4},
                     {kBatchMode, 4},
                     {kRowsArray, 8},
                     {kColumnsArray, 8},
                     {kStridesArray, 8}});
}
Attributes preferences() {
  return Attributes({{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8},
                     {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4},
                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4},
                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4},
                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4},
                     {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4},
                     {fp8::gemm::kAverageRows, 8},
                     {fp8::gemm::kAverageColumns, 8},
                     {fp8::gemm::kAverageContraction, 8}});
}

template <class T>
Attributes& of(T* object) {
  return *reinterpret_cast<Attributes*>(object);
}
template <class T>
cublasStatus_t make(T** to, Attributes attributes) {
  *to = reinterpret_cast<T*>(std::make_unique<Attributes>(std::move(attributes)).release());
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(T* object) {
  const std::unique_ptr<Attributes> owned(&of(object));
  return CUBLAS_STATUS_SUCCESS;
}

Matrix matrix_of(cublasLtMatrixLayout_t object) {
  const Attributes& l = of(object);
  Matrix x;
  x.type = l.as<cudaDataType>(CUBLASLT_MATRIX_LAYOUT_TYPE);
  x.rows = l.as<std::int64_t>(CUBLASLT_MATRIX_LAYOUT_ROWS);
  x.columns = l.as<std::int64_t>(CUBLASLT_MATRIX_LAYOUT_COLS);
  x.ld = l.as<std::int64_t>(CUBLASLT_MATRIX_LAYOUT_LD);
  return x;
}

Product product_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c) {
  const Attributes& d = of(desc);
  Product p;
  p.a = matrix_of(a);
  p.b = matrix_of(b);
  p.c = matrix_of(c);
  p.a.transposed = d.as<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSA) != CUBLAS_OP_N;
  p.b.transposed = d.as<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSB) != CUBLAS_OP_N;
  p.a.scale = d.as<const void*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
  p.b.scale = d.as<const void*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  p.a.mode = static_cast<cublasLtMatmulMatrixScale_t>(d.as<std::int32_t>(CUBLASLT_MATMUL_DESC_A_SCALE_MODE));
  p.b.mode = static_cast<cublasLtMatmulMatrixScale_t>(d.as<std::int32_t>(CUBLASLT_MATMUL_DESC_B_SCALE_MODE));
  if (d.as<std::int32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_BIAS)
    p.bias = d.as<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  const auto type = d.as<std::int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  p.bias_type = type < 0 ? p.c.type : static_cast<cudaDataType>(type);
  return p;
}

bool is_block(cublasLtMatmulMatrixScale_t mode) {
  return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
}

// What the manual says of FP8 with these scales on this chip.
cublasStatus_t check_scales(const Product& p, int capability, bool fast) {
  constexpr auto kRows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  const auto x = p.a.mode, y = p.b.mode;
  const bool blocks = is_block(x) && is_block(y),
             both_large = x == y && x == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  if ((x != y && !blocks) || both_large) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (x != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F && (p.a.scale == nullptr || p.b.scale == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((x == kRows || blocks) && capability != 90) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (x == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0) return CUBLAS_STATUS_NOT_SUPPORTED;  // not used
  const bool e5m2 = p.a.type == CUDA_R_8F_E5M2 || p.b.type == CUDA_R_8F_E5M2;
  if (blocks && e5m2 && refuses("e5m2_blocks")) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((x == kRows && refuses("rows")) || (blocks && refuses("blocks")) || refuses("all"))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (blocks && (fast || p.c.rows % 4 != 0 || p.c.columns % 4 != 0)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto aligned = [](const void* scale) { return reinterpret_cast<std::uintptr_t>(scale) % 16 == 0; };
  if (blocks && !(aligned(p.a.scale) && aligned(p.b.scale))) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

// Alignments in bytes of A, B, and C and D.
struct Alignments {
  std::uint64_t a, b, c;
};

cublasStatus_t check_fp8(const Product& p, const Alignments& at, int capability, bool fast) {
  if (capability < 89) return CUBLAS_STATUS_ARCH_MISMATCH;
  if (!fp8::lt::is_fp8(p.b.type) || (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!p.a.transposed || p.b.transposed) return CUBLAS_STATUS_NOT_SUPPORTED;  // TN
  const auto size = static_cast<std::int64_t>(fp8::lt::size_of(p.c.type));
  for (const std::int64_t bytes : {p.a.rows, p.b.rows, p.a.ld, p.b.ld, p.c.rows * size, p.c.ld * size}) {
    if (bytes % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (refuses("narrow") && p.c.rows % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (at.a % 16 != 0 || at.b % 16 != 0 || at.c % 16 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.bias != nullptr && p.bias_type != CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
  return check_scales(p, capability, fast);
}

cublasStatus_t check_floats(const Product& p) {
  if (p.a.type != p.b.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.a.type == CUDA_R_32F && p.c.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.bias != nullptr && p.bias_type != p.c.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  return p.a.scale != nullptr || p.b.scale != nullptr ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check(cublasLtMatmulDesc_t desc, const Product& p, const Alignments& at, int capability) {
  const Attributes& d = of(desc);
  for (const Matrix* x : {&p.a, &p.b, &p.c}) {
    if (fp8::lt::size_of(x->type) == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (x->rows <= 0 || x->columns <= 0 || x->ld < x->rows) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (p.a.m() != p.c.rows || p.b.n() != p.c.columns || p.a.n() != p.b.m()) return CUBLAS_STATUS_INVALID_VALUE;
  if (fp8::lt::is_fp8(p.c.type)) return CUBLAS_STATUS_NOT_SUPPORTED;  // this project has no such C
  const auto epilogue = d.as<std::int32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE);
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_BIAS) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (epilogue == CUBLASLT_EPILOGUE_BIAS && p.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const bool fast = d.as<std::int8_t>(CUBLASLT_MATMUL_DESC_FAST_ACCUM) != 0;
  return fp8::lt::is_fp8(p.a.type) || fp8::lt::is_fp8(p.b.type) ? check_fp8(p, at, capability, fast) : check_floats(p);
}

// Whether all memory of the call is on the device.
bool on_device(const Product& p) {
  using fp8::runtime::on_device;
  const std::int64_t k = p.a.n();
  const bool a = p.a.scale == nullptr || on_device(p.a.scale, fp8::lt::scale_bytes(p.a.mode, p.c.rows, k));
  const bool b = p.b.scale == nullptr || on_device(p.b.scale, fp8::lt::scale_bytes(p.b.mode, p.c.columns, k));
  const bool bias =
      p.bias == nullptr || on_device(p.bias, static_cast<std::size_t>(p.c.rows) * fp8::lt::size_of(p.bias_type));
  return a && b && bias && on_device(p.a.data, p.a.bytes()) && on_device(p.b.data, p.b.bytes()) &&
         on_device(p.d, p.c.bytes()) && (p.beta == 0 || on_device(p.c.data, p.c.bytes()));
}

bool is_grouped(cublasLtMatrixLayout_t l) { return of(l).as<std::int32_t>(kBatchMode) == kGrouped; }
std::int32_t count_of(cublasLtMatrixLayout_t l) { return of(l).as<std::int32_t>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT); }

// What the manual requires of grouped matrices before their extents are read.
cublasStatus_t check_groups(cublasLtMatmulDesc_t desc, const Product& p, int capability) {
  const bool fp8 = fp8::lt::is_fp8(p.a.type);
  const std::size_t from = capability != 90 ? 130300 : fp8 ? 130500 : 130400;
  if (refuses("groups") || capability < 90 || capability >= 120 || cublasLtGetVersion() < from)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // All published callers have alpha and beta on the device.
  if (of(desc).as<std::int32_t>(CUBLASLT_MATMUL_DESC_POINTER_MODE) != CUBLASLT_POINTER_MODE_DEVICE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (of(desc).as<std::int32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE) != CUBLASLT_EPILOGUE_DEFAULT || p.a.type == CUDA_R_32F ||
      fp8 != fp8::lt::is_fp8(p.b.type) || (!fp8 && p.a.type != p.b.type) || fp8::lt::is_fp8(p.c.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!fp8) return p.a.scale != nullptr || p.b.scale != nullptr ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  const bool both_e5m2 = p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2;
  const bool scaled = p.a.mode == fp8::gemm::kScaleOfEach && p.b.mode == fp8::gemm::kScaleOfEach &&
                      p.a.scale != nullptr && p.b.scale != nullptr;
  return !both_e5m2 && scaled && p.a.transposed && !p.b.transposed ? CUBLAS_STATUS_SUCCESS
                                                                   : CUBLAS_STATUS_NOT_SUPPORTED;
}

// Products that this process has computed.
struct Computed {
  int grouped = 0, single = 0, kernels = 0;
  ~Computed() {
    if (std::getenv("FP8_CUBLASLT_TELL") != nullptr)
      std::fprintf(stderr, "stand-in for cuBLASLt: %d grouped GEMMs and %d single ones, with %d kernels\n", grouped,
                   single, kernels);
  }
};
Computed& computed() {
  static Computed all;
  return all;
}

// Addresses of the extents of matrices of a grouped layout.
struct Extents {
  explicit Extents(cublasLtMatrixLayout_t l)
      : rows(of(l).as<const std::int32_t*>(kRowsArray)),
        columns(of(l).as<const std::int32_t*>(kColumnsArray)),
        strides(of(l).as<const std::int32_t*>(kStridesArray)) {}
  const std::int32_t *rows, *columns, *strides;

  Matrix of_group(Matrix x, int g) const {
    x.rows = rows[g];
    x.columns = columns[g];
    x.ld = strides[g];
    return x;
  }
};

// A call with grouped matrices.
struct GroupedProduct {
  Product p;  // addresses are of arrays
  Extents a, b, c;
  int count;
  const float *alpha, *beta;  // on the device
};

// What the library leaves undefined fails the device.
void require_group(const Product& p) {
  for (const Matrix* x : {&p.a, &p.b, &p.c}) {
    const auto size = static_cast<std::int64_t>(fp8::lt::size_of(x->type));
    const auto address = reinterpret_cast<std::uintptr_t>(x->data);
    if (x->rows <= 0 || x->columns <= 0 || x->ld < x->rows || x->rows * size % 16 != 0 || x->ld * size % 16 != 0 ||
        address % 16 != 0)
      throw std::runtime_error("grouped GEMM: a matrix is empty, or not aligned to 16 bytes");
  }
  if (p.a.m() != p.c.rows || p.b.n() != p.c.columns || p.a.n() != p.b.m())
    throw std::runtime_error("grouped GEMM: extents do not fit");
  if (!on_device(p)) throw std::runtime_error("grouped GEMM: memory is not on the device");
}

void compute(const GroupedProduct& groups) {
  const Product& p = groups.p;
  const auto* const all_a = static_cast<const void* const*>(p.a.data);
  const auto* const all_b = static_cast<const void* const*>(p.b.data);
  const auto* const all_d = static_cast<void* const*>(p.d);
  const auto* const scales_a = static_cast<const void* const*>(p.a.scale);
  const auto* const scales_b = static_cast<const void* const*>(p.b.scale);
  for (int g = 0; g < groups.count; ++g) {
    Product one = p;
    one.alpha = *groups.alpha;
    one.beta = *groups.beta;
    one.a = groups.a.of_group(p.a, g);
    one.b = groups.b.of_group(p.b, g);
    one.c = groups.c.of_group(p.c, g);
    one.a.data = all_a[g];
    one.b.data = all_b[g];
    one.c.data = one.d = all_d[g];
    one.a.mode = one.b.mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    one.a.scale = scales_a == nullptr ? nullptr : scales_a[g];
    one.b.scale = scales_b == nullptr ? nullptr : scales_b[g];
    require_group(one);
    fp8::lt::compute(one);
  }
}

// What a kernel was chosen for. Of grouped GEMMs m is their number, negative.
struct Chosen {
  std::int64_t m, n, k;
  std::uint32_t a, b, c;  // alignments
  std::uint32_t workspace;
};

std::uint64_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// Layouts of A, B, C and D.
struct Layouts {
  cublasLtMatrixLayout_t a, b, c, d;
};

// A call with grouped matrices: extents and addresses are read when the stream comes to it.
cublasStatus_t multiply_groups(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const Product& p, const float* alpha,
                               const float* beta, const Layouts& of, const cublasLtMatmulAlgo_t* algo, void* workspace,
                               std::size_t workspace_bytes, cudaStream_t stream) {
  const cublasStatus_t status = check_groups(desc, p, handle->capability);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (refuses("group_calls") || algo == nullptr || of.c != of.d || p.c.data != p.d) return CUBLAS_STATUS_NOT_SUPPORTED;
  Chosen chosen{};
  std::memcpy(&chosen, algo, sizeof chosen);
  const auto count = static_cast<std::size_t>(count_of(of.c));
  if (chosen.m != -count_of(of.c) || workspace_bytes < chosen.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* const array : {p.a.data, p.b.data, static_cast<const void*>(p.d), p.a.scale, p.b.scale}) {
    if (array == nullptr) continue;
    if (address(array) % 16 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (!fp8::runtime::on_device(array, count * sizeof(void*))) return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  for (const float* const factor : {alpha, beta})
    if (!fp8::runtime::on_device(factor, sizeof(float))) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++computed().grouped;
  const GroupedProduct groups{p, Extents(of.a), Extents(of.b), Extents(of.c), count_of(of.c), alpha, beta};
  fp8::runtime::launch(stream, "grouped product of cuBLASLt", [groups, workspace] {
    std::memset(workspace, 0xFF, kWorkspaceUsed);
    compute(groups);
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return static_cast<std::size_t>(number_of("FP8_CUBLASLT_VERSION", 131000)); }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED   ? "the functionality requested is not supported"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "an unsupported value or parameter was passed to the function"
         : status == CUBLAS_STATUS_ARCH_MISMATCH ? "the function requires a feature absent from the device architecture"
                                                 : "the function failed to launch on the GPU";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* to) {
  auto made = std::make_unique<cublasLtContext>();
  made->capability = number_of("FP8_DEVICE_CAPABILITY", 90);
  *to = made.release();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const std::unique_ptr<cublasLtContext> owned(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return make(to, operation());
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return of(desc).set(attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              void* value, std::size_t bytes, std::size_t* written) {
  return of(desc).get(attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t ld) {
  Attributes made = layout();
  (void)made.set(CUBLASLT_MATRIX_LAYOUT_TYPE, &type, 4);
  (void)made.set(CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, 8);
  (void)made.set(CUBLASLT_MATRIX_LAYOUT_COLS, &columns, 8);
  (void)made.set(CUBLASLT_MATRIX_LAYOUT_LD, &ld, 8);
  return make(to, std::move(made));
}
cublasStatus_t cublasLtGroupedMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType type, int count,
                                                 const void* rows, const void* columns, const void* strides) {
  Attributes made = layout();
  (void)made.set(CUBLASLT_MATRIX_LAYOUT_TYPE, &type, 4);
  (void)made.set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, 4);
  (void)made.set(kBatchMode, &kGrouped, 4);
  (void)made.set(kRowsArray, &rows, 8);
  (void)made.set(kColumnsArray, &columns, 8);
  (void)made.set(kStridesArray, &strides, 8);
  return make(to, std::move(made));
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t object) { return destroy(object); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t object,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  return of(object).set(attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t object,
                                                cublasLtMatrixLayoutAttribute_t attribute, void* value,
                                                std::size_t bytes, std::size_t* written) {
  return of(object).get(attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) { return make(to, preferences()); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t object) { return destroy(object); }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t object,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  return of(object).set(attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t object,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, void* value,
                                                    std::size_t bytes, std::size_t* written) {
  return of(object).get(attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (most < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Product p = product_of(desc, a, b, c);
  const Attributes& want = of(preference);
  Chosen chosen{p.c.rows,
                p.c.columns,
                p.a.n(),
                want.as<std::uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
                want.as<std::uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
                want.as<std::uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES),
                kWorkspaceUsed};
  const bool grouped = is_grouped(c);
  if (grouped && (!is_grouped(a) || !is_grouped(b) || count_of(a) != count_of(c) || count_of(b) != count_of(c)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (grouped) chosen.m = -count_of(c);
  const cublasStatus_t status = grouped ? check_groups(desc, p, handle->capability)
                                        : check(desc, p, {chosen.a, chosen.b, chosen.c}, handle->capability);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (want.as<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) < kWorkspaceUsed)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  static_assert(sizeof chosen <= sizeof results->algo);
  *results = {};
  std::memcpy(&results->algo, &chosen, sizeof chosen);
  results->workspaceSize = kWorkspaceUsed;
  if (!grouped) ++computed().kernels;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  Product p = product_of(desc, a_layout, b_layout, c_layout);
  p.a.data = a;
  p.b.data = b;
  p.c.data = c;
  p.d = d;
  if (is_grouped(c_layout))
    return multiply_groups(handle, desc, p, static_cast<const float*>(alpha), static_cast<const float*>(beta),
                           {a_layout, b_layout, c_layout, d_layout}, algo, workspace, workspace_bytes, stream);
  p.alpha = *static_cast<const float*>(alpha);
  p.beta = *static_cast<const float*>(beta);
  const cublasStatus_t status = check(desc, p, {address(a), address(b), address(c) | address(d)}, handle->capability);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (refuses("row_calls") && p.a.mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (refuses("fp8_calls") && fp8::lt::is_fp8(p.a.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algo == nullptr || c_layout != d_layout) return CUBLAS_STATUS_NOT_SUPPORTED;  // this project always has them so
  Chosen chosen{};
  std::memcpy(&chosen, algo, sizeof chosen);
  const bool same = chosen.n == p.c.columns && chosen.k == p.a.n(),
             fewer = chosen.n >= p.c.columns && chosen.k >= p.a.n() && !refuses("other_rows");
  const bool fits = chosen.m == p.c.rows && (same || fewer) && address(a) % chosen.a == 0 &&
                    address(b) % chosen.b == 0 && (address(c) | address(d)) % chosen.c == 0;
  if (!fits || workspace_bytes < chosen.workspace || address(workspace) % 16 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!on_device(p) || !fp8::runtime::on_device(workspace, workspace_bytes)) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++computed().single;
  fp8::runtime::launch(stream, "product of cuBLASLt", [p, workspace] {
    std::memset(workspace, 0xFF, kWorkspaceUsed);
    fp8::lt::compute(p);
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}
}
