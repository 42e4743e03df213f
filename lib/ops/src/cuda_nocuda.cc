// Stand-ins for builds without CUDA.
#include "cuda.h"

#include "fp8/base/error.h"

namespace fp8::ops::cuda {
namespace {

[[noreturn]] void none() { throw Error("this build has no CUDA"); }

}  // namespace

void norm_forward(const Context&, const char*, const View&, const View&, const View&, float, const View&, const View&,
                  const View&) {
  none();
}
void norm_backward(const Context&, const View&, const View&, const View&, const View&, const View&, const View&,
                   const View&, const View&) {
  none();
}
void add(const Context&, const View&, const View&, const View&) { none(); }
void copy(const Context&, const View&, const View&) { none(); }
void zero(const Context&, const View&) { none(); }
void swiglu_forward(const Context&, const View&, const View&) { none(); }
void swiglu_backward(const Context&, const View&, const View&, const View&) { none(); }
void embedding_forward(const Context&, const View&, const View&, const View&) { none(); }
void embedding_backward(const Context&, const View&, const View&, const View&, const View&) { none(); }
void bias_backward(const Context&, const View&, const View&, const View&) { none(); }
void cross_entropy(const Context&, const View&, const View&, const View&, float, bool) { none(); }
void rope_tables(const Context&, std::span<const float>, const View&, const View&) { none(); }
void rope(const Context&, const View&, const View&, const View&, bool) { none(); }
void attention_documents(const Context&, const Documents&, const DocumentTables&) { none(); }
void turn(const Context&, const View&, const View&) { none(); }
void attention_forward(const Context&, const View&, const View&, const View&, float, const Documents&, const View&,
                       const View&) {
  none();
}
void attention_backward(const Context&, const View&, const View&, const View&, const View&, const View&, const View&,
                        float, const Documents&, const View&, const View&, const View&, const AttentionScratch&) {
  none();
}

}  // namespace fp8::ops::cuda
