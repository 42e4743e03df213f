/// Exports a checkpoint as a Hugging Face folder that transformers, vLLM and SGLang load: weights in safetensors files,
/// configuration, tokenizer. Weights are in bf16, or linears as E4M3 or E2M1 codes with scales: codes of a quantized
/// checkpoint unchanged, other weights quantized here. The inverse is convert().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/model/initialize.h"

namespace fp8::convert {

/// Format of the linears in an exported folder; embeddings, norms, biases and the LM head are bf16 in each.
enum class ExportFormat : std::uint8_t {
  bf16,                ///< bf16
  fp8,                 ///< E4M3 with one f32 factor for each block of 128 x 128 (`weight_scale_inv`)
  compressed_tensors,  ///< E4M3 with one f32 factor for each row (`weight_scale`)
  nvfp4,  ///< E2M1 with one E4M3 scale for each 16 of a row under one f32 scale, as compressed-tensors has it
  peft,   ///< the LoRA adapters alone in f32, as PEFT writes them
};

/// Options of export_folder().
struct ExportOptions {
  ExportFormat format = ExportFormat::bf16;  ///< format of the linears
  std::uint64_t file_bytes = 5'000'000'000;  ///< a file of weights ends before it has more; a tensor is never split
  std::vector<std::string> end_tokens{};     ///< tokens that also end a text, see export_folder()
  std::optional<std::string> form{};         ///< chat template, a name or a path; without one that of the checkpoint
  bool any_template = false;                 ///< `form` may be another than the checkpoint's own
  std::vector<std::string> inputs{};         ///< files that all this was read from, see check_not_input()
  bool force = false;                        ///< replace a folder that an export wrote
  bool strict = false;                       ///< what servers refuse is an error, not a warning
  bool dry_run = false;                      ///< check everything, write nothing
  model::ProgressSink progress{};            ///< may be empty
};

/// A tensor of the folder.
struct ExportedTensor {
  std::string name;                 ///< name in the file
  std::vector<std::int64_t> shape;  ///< extents
  dtype::DType dtype;               ///< bf16, e4m3, u8 of packed E2M1; f32 or e4m3 of scales
  std::string file;                 ///< name of its file
  std::string origin;               ///< copied, rounded, dequantized, quantized, codes kept, scales
};

/// The contents of the output, or under dry_run of the output that would be written.
struct ExportReport {
  std::string source;                   ///< path of the checkpoint
  std::vector<ExportedTensor> tensors;  ///< tensors in order of computation
  std::vector<std::string> files;       ///< names of all files of the folder
  std::vector<std::string> warnings;    ///< sentences about tensors that servers refuse or misread
  std::vector<std::string> notes;       ///< sentences about the source, and about files that a server will miss
  std::uint64_t bytes = 0;              ///< size of all tensors
};

/// Writes the folder `output` from a checkpoint, see open_checkpoint(). Weights are read, converted and written in
/// pieces. Quantization is that of recipe rowwise (compressed_tensors), blockwise (fp8), with scales that are not
/// powers of two, or nvfp4, with one amax for linears that servers compute as one; which linears are quantized is their
/// compute precision in the checkpoint. Adapters have a folder of their own (peft); in the others they must have been
/// merged. The end tokens, and that of the chat template, are added to those of generation_config.json; in a folder of
/// adapters the first of them also is that of tokenizer_config.json. Throws Error, and leaves no output, when the
/// source is damaged or not finite, when its codes do not fit the format (E5M2; one factor per row in blocks; blocks in
/// rows), when no linear can be quantized, when the checkpoint's tokenizer lacks an end token, when the chat template
/// is another than the checkpoint's, and when `output` exists without `force` or holds files that no export writes;
/// Error(no) under `strict` for what servers refuse. Deterministic.
ExportReport export_folder(const std::string& source, const std::string& output, const ExportOptions& asked);

}  // namespace fp8::convert
