// Single-file checkpoints, fp8-checkpoint(5): reads all documents and tensors, then verifies all digests.
#include "fp8/ckpt/checkpoint.h"

#include <vector>

#include "fp8/base/file_name.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/hf/config.h"
#include "fuzz.h"
#include "hdf5_repair.h"

FP8_FUZZ(checkpoint) {
  using namespace fp8;
  const std::string path = fuzz::folder().write("x.h5", fuzz::text_of(data, size));
  return fuzz::judge([&] {
    const ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(path);
    std::uint64_t total = 0;
    for (const ckpt::TensorMeta& t : checkpoint.tensors()) {
      total += t.bytes();
      fuzz::require(total <= size, "tensors are no larger than their file");
      std::vector<float> values(static_cast<std::size_t>(t.bytes() / dtype::size_of(t.dtype)));
      if (t.dtype != dtype::DType::i64 && t.dtype != dtype::DType::i32)
        checkpoint.read_rows_as_f32(t.name, 0, t.rows(), values);
    }
    (void)checkpoint.tokenizer();
    for (const auto& [name, text] : checkpoint.huggingface())
      fuzz::require(is_bare_name(name), "names of files are bare");
    checkpoint.verify();
    if (!checkpoint.train().is_null()) {
      const ckpt::Position at = ckpt::position_of(checkpoint);
      fuzz::require(at.updates >= 0 && at.updates <= at.step && at.tokens >= at.step, "counters agree");
    }
    (void)hf::parse_config(checkpoint.config(), path);
  });
}

extern "C" std::size_t FP8_MUTATOR(checkpoint)(std::uint8_t* data, std::size_t size, std::size_t max, unsigned) {
  return fp8::fuzz::mutate_hdf5(data, size, max, fp8::h5::kCheckpointMagic);
}
