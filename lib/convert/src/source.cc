// Reading weights from a Hugging Face folder or a checkpoint.
#include "source.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "fp8/base/error.h"
#include "fp8/convert/stored_weight.h"
#include "fp8/dtype/convert.h"
#include "fp8/model/record.h"
#include "fp8/quant/fp4.h"

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
  for (const hf::FolderWeight& weight : folder_tensors_.weights) {
    tensors_.push_back({weight.name, weight.shape, weight.format, weight.entry->info->dtype});
    SourceTensor& tensor = tensors_.back();
    tensor.entry = weight.entry;
    const auto codes = folder_tensors_.codes.find(weight.name);
    if (codes == folder_tensors_.codes.end()) continue;
    tensor.scales_shape = codes->second.scales_shape;
    if (codes->second.global != nullptr) tensor.scales_type = dtype::DType::e4m3;
  }
}

void Source::list_checkpoint() {
  std::set<std::string> coded;
  for (const ckpt::TensorMeta& meta : checkpoint_->tensors(ckpt::kWeights)) {
    tensors_.push_back(
        {meta.name.substr(ckpt::kWeights.size()), meta.extents(), meta.dtype, std::string(dtype::name_of(meta.dtype))});
    if (dtype::is_coded(meta.dtype)) coded.insert(tensors_.back().name);
    const ckpt::TensorMeta* scales = checkpoint_->find(std::string(ckpt::kScales) + tensors_.back().name);
    if (scales == nullptr || !dtype::is_coded(meta.dtype)) continue;
    const auto scaling = find_granularity(scales->dtype, scales->shape, meta.extents());
    if (!scaling || scaling == quant::Granularity::block1x16 ||
        (scaling == quant::Granularity::block16x16) != dtype::is_fp4(meta.dtype))
      throw Error(path_ + ": /" + scales->name + ": its shape is not that of scales for the codes");
    if (dtype::is_fp4(meta.dtype)) check_amax(*checkpoint_, tensors_.back().name);
    tensors_.back().scales_shape = scales->shape;
    tensors_.back().scales_type = scales->dtype;
  }
  check_no_others(*checkpoint_, coded);
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

StoredScales Source::scales_as_stored(const SourceTensor& tensor) const {
  if (!folder_) return convert::stored_scales(*checkpoint_, tensor.name);
  StoredScales scales{.dtype = tensor.scales_type, .shape = tensor.scales_shape, .bytes = {}, .amax = 0};
  const hf::Codes& codes = folder_tensors_.codes.at(tensor.name);
  if (codes.global != nullptr) {
    std::tie(scales.bytes, scales.amax) = hf::read_fp4_scales(*folder_, codes);
  } else {
    const std::vector<float> factors = hf::read_scales(*folder_, codes);
    const auto bytes = std::as_bytes(std::span(factors));
    scales.bytes.assign(bytes.begin(), bytes.end());
  }
  return scales;
}

std::vector<float> Source::scales(const SourceTensor& tensor) const {
  return scales_as_stored(tensor).factors(path_ + ": " + tensor.name, *tensor.format);
}

StoredScales Source::stored_scales(const SourceTensor& tensor) const {
  StoredScales scales = scales_as_stored(tensor);
  (void)scales.factors(path_ + ": " + tensor.name, *tensor.format);  // throws for a bad one
  if (!folder_ || scales.dtype != dtype::DType::e4m3) return scales;
  const std::int64_t rows = tensor.shape[0], cols = tensor.scales_shape[1];
  const auto row = [&](std::int64_t r) {
    return std::span(scales.bytes).subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols));
  };
  std::vector<std::byte> of_blocks;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t first = r / quant::kFp4Block * quant::kFp4Block;
    if (r == first) of_blocks.insert(of_blocks.end(), row(r).begin(), row(r).end());
    if (!std::ranges::equal(row(r), row(first)))
      throw Error(path_ + ": " + tensor.name + ": the FP4 scales of rows " + std::to_string(first) + " and " +
                      std::to_string(r) + " differ, and a checkpoint has one for each block of 16x16",
                  {{"dequantize", ""}});
  }
  scales.bytes = std::move(of_blocks);
  scales.shape = scales_shape(quant::Granularity::block16x16, rows, tensor.shape[1]);
  return scales;
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
    codes_.resize(values_.size() / static_cast<std::size_t>(dtype::packed(*tensor_.format)));
    read_stored(begin, end, codes_);
    dtype::to_floats(*tensor_.format, codes_.data(), values_);
    multiply_rows(source_.path() + ": " + tensor_.name, values_, begin, tensor_.shape[1], scales_, *grid_);
  } else if (source_.folder_) {
    source_.folder_->read_rows_f32(*tensor_.entry, begin, end - begin, values_);
  } else {
    source_.checkpoint_->read_rows_as_f32(std::string(ckpt::kWeights) + tensor_.name, begin, end, values_);
  }
  const std::int64_t cols = tensor_.shape.size() == 2 ? tensor_.shape[1] : 1;
  store_rows(source_.path() + ": " + tensor_.name, values_, begin, cols, type_, out);
}

void RowReader::read_stored(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const {
  if (source_.folder_) {
    source_.folder_->read_rows(*tensor_.entry, begin, end - begin, out);
  } else {
    source_.checkpoint_->read_rows(std::string(ckpt::kWeights) + tensor_.name, begin, end, out);
  }
}

}  // namespace fp8::convert
