// Reading weights from a Hugging Face folder or a checkpoint.
#include "source.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/convert/stored_weight.h"
#include "fp8/dtype/convert.h"
#include "fp8/model/record.h"

namespace fp8::convert {

Source::Source(const std::string& path) : path_(path) {
  if (hf::Folder::looks_like(path)) {
    folder_.emplace(path);
    config_ = folder_->config();
    list_folder();
  } else {
    checkpoint_.emplace(model::open_checkpoint(path));
    config_ = hf::parse_config(checkpoint_->config(), checkpoint_->path() + ": /config");
    list_checkpoint();
  }
}

void Source::list_folder() {
  folder_tensors_ = hf::tensors_of(*folder_);
  for (const hf::Folder::Entry* entry : folder_tensors_.weights) {
    const hf::TensorInfo& info = *entry->info;
    tensors_.push_back({info.name, info.shape, info.format, info.dtype});
    const auto codes = folder_tensors_.codes.find(info.name);
    if (codes != folder_tensors_.codes.end()) tensors_.back().scales_shape = codes->second.scales_shape;
  }
}

void Source::list_checkpoint() {
  for (const ckpt::TensorMeta& meta : checkpoint_->tensors(ckpt::kWeights)) {
    tensors_.push_back(
        {meta.name.substr(ckpt::kWeights.size()), meta.shape, meta.dtype, std::string(dtype::name_of(meta.dtype))});
    const ckpt::TensorMeta* scales = checkpoint_->find(std::string(ckpt::kScales) + tensors_.back().name);
    if (scales == nullptr || !dtype::is_fp8(meta.dtype)) continue;
    if (!find_grid(scales->dtype, scales->shape, meta.shape))
      throw Error(path_ + ": /" + scales->name + ": its shape is not that of scales for the codes");
    tensors_.back().scales_shape = scales->shape;
    tensors_.back().scales_type = scales->dtype;
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

std::vector<float> Source::scales(const SourceTensor& tensor) const {
  if (folder_) return hf::read_scales(*folder_, folder_tensors_.codes.at(tensor.name));
  return read_scales(*checkpoint_, tensor.name);
}

RowReader::RowReader(const Source& source, const SourceTensor& tensor, dtype::DType type)
    : source_(source), tensor_(tensor), type_(type) {
  if (!tensor.codes() || type == tensor.format) return;
  scales_ = source.scales(tensor);
  grid_ = find_grid(tensor.scales_type, tensor.scales_shape, tensor.shape);
}

void RowReader::read(std::int64_t begin, std::int64_t end, std::span<std::byte> out) {
  if (tensor_.format == type_) return read_stored(begin, end, out);
  values_.resize(out.size() / dtype::size_of(type_));
  if (tensor_.codes()) {
    codes_.resize(values_.size());
    read_stored(begin, end, codes_);
    dtype::to_floats(*tensor_.format, codes_.data(), values_);
    multiply_rows(source_.path() + ": " + tensor_.name, values_, begin, tensor_.shape[1], scales_, *grid_);
  } else if (source_.folder_) {
    source_.folder_->read_rows_f32(*source_.folder_->find(tensor_.name), begin, end - begin, values_);
  } else {
    source_.checkpoint_->read_rows_as_f32(std::string(ckpt::kWeights) + tensor_.name, begin, end, values_);
  }
  const std::int64_t cols = tensor_.shape.size() == 2 ? tensor_.shape[1] : 1;
  store_rows(source_.path() + ": " + tensor_.name, values_, begin, cols, type_, out);
}

void RowReader::read_stored(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const {
  if (source_.folder_) {
    source_.folder_->read_rows(*source_.folder_->find(tensor_.name), begin, end - begin, out);
  } else {
    source_.checkpoint_->read_rows(std::string(ckpt::kWeights) + tensor_.name, begin, end, out);
  }
}

}  // namespace fp8::convert
