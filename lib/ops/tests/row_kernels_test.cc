// Loops over rows have the same bits for every instruction set, at lengths with every kind of remainder.
#include "row_kernels.h"

#include <gtest/gtest.h>

#include <bit>

#include "isas.h"
#include "reference.h"

namespace fp8::ops {
namespace {

constexpr std::int64_t kLengths[] = {1, 2, 15, 16, 31, 33, 64, 100, 511, 1025, 2100};

template <class T>
std::vector<T> row_of(std::int64_t n, unsigned seed, double scale = 4) {
  std::vector<T> row;
  for (const double v : random_values(n, seed, scale)) row.push_back(dtype::from_float<T>(static_cast<float>(v)));
  return row;
}

// Bits of the results of loops, one after the other.
class Results {
 public:
  void add(float v) { bits_.push_back(std::bit_cast<std::uint32_t>(v)); }
  void add(Bf16 v) { bits_.push_back(v.bits); }
  template <class T>
  void add(const std::vector<T>& row) {
    for (const T v : row) add(v);
  }
  bool operator==(const Results&) const = default;

 private:
  std::vector<std::uint32_t> bits_;
};

template <class T>
Results run_all(const RowLoops<T>& loops, std::int64_t n) {
  const std::vector<T> a = row_of<T>(n, 1), b = row_of<T>(n, 2), c = row_of<T>(n, 3, 20);
  std::vector<T> x = a, y = b;
  std::vector<float> floats = row_of<float>(n, 4), sines = row_of<float>(n, 5), wide(a.size());
  std::vector<Bf16> narrow(a.size());
  Results all;
  loops.to_f32(a.data(), wide.data(), n);
  all.add(wide);
  loops.to_bf16(a.data(), narrow.data(), n);
  all.add(narrow);
  loops.add(a.data(), b.data(), x.data(), n);
  all.add(x);
  for (const std::uint32_t limit : {0x7FFFFFFFu, 0x3F800000u})
    all.add(std::bit_cast<float>(loops.largest(c.data(), n, limit)));
  loops.swiglu(c.data(), b.data(), x.data(), n);
  all.add(x);
  loops.swiglu_gradients(a.data(), c.data(), b.data(), x.data(), y.data(), n);
  all.add(x);
  all.add(y);
  loops.rotate(x.data(), 2, n / 2, floats.data(), sines.data(), -1.0f, n / 4);
  all.add(x);
  all.add(loops.norm(c.data(), b.data(), 1e-5f, x.data(), n));
  all.add(x);
  for (const T* upstream : {static_cast<const T*>(nullptr), c.data()}) {
    loops.norm_gradient({a.data(), c.data(), b.data(), upstream, x.data(), floats.data(), 0.3f}, n);
    all.add(x);
    all.add(floats);
  }
  loops.add_to(b.data(), floats.data(), n);
  all.add(floats);
  all.add(loops.largest_logit(c.data(), n));
  all.add(static_cast<float>(loops.sum_of_exp(c.data(), n, 3.5f)));
  x = c;
  loops.logit_gradients(x.data(), n, 3.5f, 0.3f);
  all.add(x);
  for (const bool backward : {false, true}) {
    x = c;
    all.add(loops.cross_entropy(x.data(), n, static_cast<std::int32_t>(n / 2), 0.7f, backward));
    all.add(x);
  }
  return all;
}

template <class T>
void expect_same_bits() {
  for (const std::int64_t n : kLengths) {
    const Results baseline = run_all(row_loops<T>(Isa::baseline), n);
    for (const Isa isa : test::isas())
      EXPECT_TRUE(run_all(row_loops<T>(isa), n) == baseline) << name_of(isa) << ", " << n;
  }
}

TEST(RowKernels, InstructionSetsChangeNoBitOfFloats) { expect_same_bits<float>(); }
TEST(RowKernels, InstructionSetsChangeNoBitOfBf16) { expect_same_bits<Bf16>(); }

}  // namespace
}  // namespace fp8::ops
