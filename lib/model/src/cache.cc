// Memory and rotary tables of a key/value cache.
#include "fp8/model/cache.h"

#include "layer.h"

namespace fp8::model {

KeyValueCache::KeyValueCache(const device::Context& ctx, const hf::ModelConfig& config, dtype::DType activation,
                             std::int64_t capacity) {
  constexpr const char* kCategory = "key/value cache";
  cos_ = tensor::allocate(ctx, dtype::DType::f32, {capacity, config.head_dim / 2}, kCategory);
  sin_ = tensor::allocate(ctx, dtype::DType::f32, {capacity, config.head_dim / 2}, kCategory);
  fill_rope_tables(ctx, config, cos_, sin_);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const auto rows = [&] { return tensor::allocate(ctx, activation, {capacity, config.key_value_size()}, kCategory); };
    LayerCache layer;
    layer.keys = rows();
    layer.values = rows();
    layers_.push_back(layer);
  }
}

}  // namespace fp8::model
