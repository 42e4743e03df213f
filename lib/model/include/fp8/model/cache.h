/// Keys and values of the tokens of a text, in all layers, so that each further token needs a pass over itself alone.
/// Decoder::extend() fills and reads it. For one text; host memory only.
#pragma once

#include <cstdint>
#include <vector>

#include "fp8/hf/config.h"
#include "fp8/tensor/tensor.h"

namespace fp8::model {

/// Keys and values of one layer: [positions, G D] in the activations' type, keys after their rotation.
struct LayerCache {
  tensor::View keys;    ///< [capacity, G D]
  tensor::View values;  ///< [capacity, G D]
};

/// The cache of one text.
class KeyValueCache {
 public:
  /// Makes an empty cache for texts of up to `capacity` tokens. Its memory is from the context's arena, category
  /// "key/value cache".
  /// Computes the rotary tables of all positions.
  KeyValueCache(const device::Context& ctx, const hf::ModelConfig& config, dtype::DType activation,
                std::int64_t capacity);

  /// Most tokens that fit.
  std::int64_t capacity() const { return cos_.shape[0]; }
  /// Tokens of the text so far.
  std::int64_t length() const { return length_; }
  /// Removes the last tokens until `length` are left.
  void truncate(std::int64_t length) { length_ = length; }

 private:
  friend class Decoder;
  tensor::View cos_, sin_;  // f32 [capacity, D/2]
  std::vector<LayerCache> layers_;
  std::int64_t length_ = 0;
};

}  // namespace fp8::model
