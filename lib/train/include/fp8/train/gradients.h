/// The file of fp8-step --gradients: the gradient of each trained parameter of one step as the optimizer gets it,
/// before clipping (fp8-step(1)). Not their computation (step.h) and not their comparison (fp8-info(1)).
#pragma once

#include <map>
#include <string>

#include "fp8/base/error.h"
#include "fp8/comm/comm.h"
#include "fp8/hf/config.h"
#include "fp8/json/value.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::train {

/// Texts of a safetensors header, by key.
using Metadata = std::map<std::string, std::string>;

/// loss, grad_norm, step and tokens as in the record of the step, except that what is null there because it is not
/// finite is "NaN" here, the mesh, the precision and the recipe ("none" without FP8), and `attention_heads`, an object
/// with the heads of the model, by which a comparison splits fused tensors of others.
Metadata gradient_metadata(const json::Value& step_record, const json::Value& mesh, const hf::ModelConfig& config);

/// Writes the gradients of the last step to the safetensors file `path`: whole, f32, under the names of Hugging Face,
/// those of adapters under PEFT's. Rank 0 writes, one parameter after the other, and the file appears when it is
/// complete. Throws AgreedError if writing fails, or if the file exists without `force`. Collective.
void write_gradients(shard::ShardedModel& model, comm::Communicator& host_comm, const std::string& path, bool force,
                     const Metadata& metadata);

}  // namespace fp8::train
