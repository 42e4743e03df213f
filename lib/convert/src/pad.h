/// Padding with zeros that makes linears FP8-eligible: sizes of the configuration, and rows of a padded weight. Private
/// to this crate.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/convert/convert.h"
#include "fp8/hf/config.h"
#include "fp8/model/parameters.h"

namespace fp8::convert {

/// End of the reason of a linear with an extent that is not a multiple of 16.
inline constexpr std::string_view kNotAligned = " are not a multiple of 16";

/// Key of the vocabulary's size.
inline constexpr std::string_view kVocabulary = "vocab_size";

/// Whether a padded vocabulary would make the LM head FP8 under these options.
bool pads_vocabulary(const hf::ModelConfig& config, const std::optional<model::PrecisionRules>& precisions);

/// Raises the intermediate size, and the vocabulary if `vocabulary`, to the next multiples of 16. Returns what changed.
std::vector<PaddedSize> pad(hf::ModelConfig& config, bool vocabulary);

/// A sentence about the changes by a padded vocabulary.
std::string vocabulary_note(const PaddedSize& size);

/// Completes the reasons of linears that padding leaves with an extent that is not a multiple of 16.
void explain_unpadded(std::vector<model::Parameter>& table);

/// Copies rows of `from_row` bytes to the begins of rows of `to_row` bytes.
void place_rows(std::span<const std::byte> from, std::size_t from_row, std::span<std::byte> to, std::size_t to_row);

}  // namespace fp8::convert
