// Reading weights from a Hugging Face folder or a checkpoint.
#include "source.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/dtype/convert.h"
#include "fp8/model/record.h"

namespace fp8::model {

Source::Source(const std::string& path) : path_(path) {
  if (hf::Folder::looks_like(path)) {
    folder_.emplace(path);
    config_ = folder_->config();
    list_folder();
  } else {
    checkpoint_.emplace(open_checkpoint(path));
    config_ = hf::parse_config(checkpoint_->config(), path + ": /config");
    list_checkpoint();
  }
}

void Source::list_folder() {
  for (const hf::Folder::Entry& entry : folder_->tensors()) {
    tensors_.push_back({entry.info->name, entry.info->shape, entry.info->format, entry.info->dtype});
  }
}

void Source::list_checkpoint() {
  for (const ckpt::TensorMeta& meta : checkpoint_->tensors(ckpt::kWeights)) {
    tensors_.push_back(
        {meta.name.substr(ckpt::kWeights.size()), meta.shape, meta.dtype, std::string(dtype::name_of(meta.dtype))});
  }
}

const SourceTensor* Source::find(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const SourceTensor& t, std::string_view n) { return t.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

std::optional<std::string> Source::folder_tokenizer() const { return folder_ ? folder_->tokenizer() : std::nullopt; }

std::map<std::string, std::string> Source::folder_texts() const {
  return folder_ ? folder_->texts() : std::map<std::string, std::string>();
}

void Source::read_rows(const SourceTensor& tensor, std::int64_t begin, std::int64_t end, dtype::DType type,
                       std::span<std::byte> out, std::vector<float>& scratch) const {
  const hf::Folder::Entry* entry = folder_ ? folder_->find(tensor.name) : nullptr;
  const std::string stored = std::string(ckpt::kWeights) + tensor.name;
  if (tensor.format == type) {
    if (folder_) {
      folder_->read_rows(*entry, begin, end - begin, out);
    } else {
      checkpoint_->read_rows(stored, begin, end, out);
    }
    return;
  }
  scratch.resize(out.size() / dtype::size_of(type));
  if (folder_) {
    folder_->read_rows_f32(*entry, begin, end - begin, scratch);
  } else {
    checkpoint_->read_rows_as_f32(stored, begin, end, scratch);
  }
  dtype::from_floats(scratch, type, out.data());
}

}  // namespace fp8::model
