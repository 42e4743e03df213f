/// A small checkpoint, written into a test's folder as one file or by any number of ranks.
#pragma once

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/find.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/ckpt/writer.h"
#include "fp8_test.h"
#include "manifest_parts.h"

namespace fp8::ckpt {

using test::error_of;
using test::FolderTest;
using test::read_file;
using test::write_file;

/// The error of opening and verifying `path`.
inline std::string verify_error(const std::string& path) {
  return error_of([&] { Checkpoint::open(path).verify(); });
}

/// A tensor with its bytes.
struct Sample {
  TensorMeta meta;
  std::vector<std::byte> bytes;
};

inline Sample sample(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                     const std::string& precision = {}, const std::string& reason = {}) {
  Sample s{{name, dtype, std::move(shape), precision, reason, {}}, {}};
  s.bytes.resize(s.meta.bytes());
  for (std::size_t i = 0; i < s.bytes.size(); ++i) s.bytes[i] = static_cast<std::byte>((i * 7 + name.size()) % 120);
  return s;
}

/// Every kind of tensor in a checkpoint: several dtypes and ranks, a scalar, an empty one, one of an unknown section.
/// Each `run`, 0 to 7, has different bytes.
inline std::vector<Sample> samples(unsigned run = 0) {
  std::vector<Sample> all = {sample("weights/model.embed_tokens.weight", DType::f32, {7, 4}, "bf16", "not a linear"),
                             sample("weights/model.layers.0.self_attn.q_proj.weight", DType::bf16, {5, 6}, "fp8"),
                             sample("weights/model.norm.weight", DType::f32, {3}),
                             sample("optimizer/m/model.norm.weight", DType::f32, {3}),
                             sample("optimizer/v/model.norm.weight", DType::bf16, {3}),
                             sample("scales/model.layers.0.self_attn.q_proj.weight", DType::f32, {1}),
                             sample("lora/a", DType::e4m3, {2, 2, 3}),
                             sample("step_scale", DType::f64, {}),
                             sample("weights/empty", DType::f32, {0, 4})};
  for (Sample& s : all)
    for (std::byte& b : s.bytes) b ^= static_cast<std::byte>(run);
  all[6].meta.attributes = {{"alpha", 0.5}, {"note", std::string("kept")}, {"rank", std::int64_t{3}}};
  return all;
}

inline const json::Value& config() {
  static const json::Value value = json::object({{"model_type", "llama"}, {"hidden_size", 4}});
  return value;
}

/// Files of /huggingface.
inline const std::map<std::string, std::string>& texts() {
  static const std::map<std::string, std::string> value{{"chat_template.jinja", "{{ messages }}"},
                                                        {"tokenizer_config.json", "{\"eos_token\": \"</s>\"}"}};
  return value;
}

/// /train of a step, with the evaluation if there is one.
inline json::Value train_of(std::int64_t step, const std::optional<Evaluation>& evaluation = {}) {
  json::Value train = json::object({{"step", step}, {"updates", step}, {"tokens", 16 * step}});
  if (evaluation) train.as_object().set("evaluation", to_json(*evaluation));
  return train;
}

inline void write_model(const std::string& path, FileKind kind = FileKind::model, bool force = false) {
  ModelWriter w(path, kind, force);
  w.document("config", config());
  w.tokenizer("{\"model\":{}}");
  w.huggingface(texts());
  w.document("provenance", append_provenance({}, "fp8-init", "0.1.0", "fp8-init tiny"));
  if (kind == FileKind::training) w.document("train", train_of(3));
  for (const Sample& s : samples()) w.tensor(s.meta, s.bytes);
  w.commit();
}

/// First row of `rank` when `rows` are divided as evenly as possible.
inline std::int64_t first_row(std::int64_t rows, std::int64_t rank, std::int64_t world) {
  return rows / world * rank + std::min(rank, rows % world);
}

/// Writes the shard of rank `rank` of `world` into `temporary`.
inline FileEntry write_shard(const std::string& temporary, std::int64_t rank, std::int64_t world, std::int64_t step = 3,
                             unsigned run = 0, const std::optional<Evaluation>& evaluation = {}) {
  ShardWriter w(temporary, rank, world, FileKind::training);
  if (rank == 0) {
    w.document("config", config());
    w.document("train", train_of(step, evaluation));
    w.huggingface(texts());
  }
  for (const Sample& s : samples(run)) {
    const std::int64_t begin = first_row(s.meta.rows(), rank, world);
    const std::int64_t end = first_row(s.meta.rows(), rank + 1, world);
    if (begin == end) continue;
    const auto part = std::span(s.bytes).subspan(static_cast<std::size_t>(begin) * s.meta.row_bytes(),
                                                 static_cast<std::size_t>(end - begin) * s.meta.row_bytes());
    w.tensor(s.meta, rows_block(s.meta, begin, end), part);
  }
  return w.finish();
}

inline void write_folder(const std::string& path, std::int64_t world, std::int64_t step = 3, unsigned run = 0,
                         const std::optional<Evaluation>& evaluation = {}) {
  const std::string temporary = begin_folder(path);
  std::vector<FileEntry> entries;
  for (std::int64_t rank = world - 1; rank >= 0; --rank)
    entries.push_back(write_shard(temporary, rank, world, step, run, evaluation));
  commit_folder(temporary, path, FileKind::training, test::mesh_of(world), entries);
}

/// Expects every byte of every tensor as written.
inline void expect_samples(const Checkpoint& c) {
  for (const Sample& s : samples()) {
    if (std::filesystem::is_directory(c.path()) && s.meta.rows() == 0)
      continue;  // a folder holds no tensor without rows
    const TensorMeta* meta = c.find(s.meta.name);
    if (meta == nullptr) {
      ADD_FAILURE() << s.meta.name;
      continue;
    }
    EXPECT_EQ(*meta, s.meta) << s.meta.name;
    std::vector<std::byte> bytes(s.bytes.size());
    c.read(s.meta.name, bytes);
    EXPECT_EQ(bytes, s.bytes) << s.meta.name;
  }
}

}  // namespace fp8::ckpt
