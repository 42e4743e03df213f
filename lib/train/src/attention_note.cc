// Bytes and memory of attention's gradients in the plan of a run.
#include "attention_note.h"

#include <algorithm>

#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/ops/attention.h"

namespace fp8::train {
namespace {

// The bytes of a step on this rank: the bytes of a call times the number of its layers and micro-batches.
ops::GradientBytes bytes_of_step(const RunSetup& s, const DeviceSetup& device) {
  const hf::ModelConfig& model = s.model_spec.config;
  const comm::MeshShape mesh = device.mesh().shape();
  const shard::BatchShape shape = s.shape(*s.sampler);
  const auto [count, longest] = shape.documents;
  const tensor::View q =
      tensor::make_view(nullptr, DType::bf16, device.type(),
                        {shape.sequences, shape.length, model.num_attention_heads / mesh.tp, model.head_dim});
  ops::Documents documents{{}, count, longest};
  if (count > 0) documents.start.rank = 2;
  ops::GradientBytes bytes = ops::gradient_bytes(device.context(), q, model.num_key_value_heads / mesh.tp, documents);
  const std::vector<int>& stages = s.model_spec.store.stages;
  const std::int64_t layers =
      stages.empty() ? model.num_hidden_layers : stages[static_cast<std::size_t>(device.mesh().stages().rank())];
  const double calls = static_cast<double>(layers) * static_cast<double>(s.config.grad_accumulation);
  bytes.scores *= calls;
  bytes.sums *= calls;
  return bytes;
}

std::string text_of(double bytes) { return human_bytes(static_cast<std::uint64_t>(bytes)); }

std::string outdated_text(const ops::GradientBytes& bytes) {
  return "attention: " + ops::attention_library() + " stores scores, " + text_of(bytes.scores) +
         " written and read a step; 9.25 or newer stores none, nor does " + cli::flag_name("no-deterministic");
}

}  // namespace

std::string note_of_attention(const RunSetup& s, const DeviceSetup& device, std::size_t workspace, std::size_t atomic) {
  constexpr std::size_t kMuch = std::size_t{1} << 30;
  const ops::GradientBytes bytes = bytes_of_step(s, device);
  const std::string flag = cli::flag_name("no-deterministic");
  const std::string cost = bytes.ordered ? "no bytes" : text_of(std::max(0.0, bytes.scores - bytes.sums)) + " a step";
  std::string text = "attention gradients write and read " + text_of(bytes.scores) +
                     " of workspace a step if scores are stored, " + text_of(bytes.sums) + " if sums are; this run ";
  if (!s.model_spec.execution.attention.deterministic)
    return text + "stores sums, added in any order (" + flag + "); determinism would cost " + cost;
  text += bytes.ordered ? "stores sums, added in order" : "stores scores";
  text += "; determinism costs " + cost;
  if (bytes.outdated) return text + "\n" + outdated_text(bytes);
  if (workspace <= kMuch) return text;
  return text + "\nattention gradients take " + human_bytes(workspace) + "; " + human_bytes(atomic) + " with " + flag +
         ", or with cuDNN 9.25 or newer on compute capability 9.0";
}

std::string note_of_outdated_attention(const RunSetup& s, const DeviceSetup& device) {
  if (!s.model_spec.execution.attention.deterministic) return {};
  const ops::GradientBytes bytes = bytes_of_step(s, device);
  return bytes.outdated ? outdated_text(bytes) : "";
}

}  // namespace fp8::train
