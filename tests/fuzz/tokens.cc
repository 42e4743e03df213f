// Token files, fp8-tokens(5): all tokens, masks and documents of an accepted file can be read and are in range, and so
// are samples of separate documents.
#include "fp8/data/tokens.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "fp8/base/target.h"
#include "fp8/data/sampler.h"
#include "fp8/h5/types.h"
#include "fuzz.h"
#include "hdf5_repair.h"

namespace {

using namespace fp8;

void check_samples(const data::TokenFile& file) {
  const std::int64_t length = file.info().sequence_length.value_or(3);
  const data::Sampler sampler(file, data::SamplerKind::sequential, 0, length, 1, data::DocumentMode::separate);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(length)), targets(inputs.size()), starts(inputs.size());
  for (std::int64_t i = 0; i < sampler.samples(); ++i) {
    sampler.sample(i, inputs, targets, starts);
    std::int64_t documents = 0;
    for (std::size_t t = 0; t < starts.size(); ++t) {
      const std::int64_t before = static_cast<std::int64_t>(t) - starts[t];
      fuzz::require(starts[t] >= 0 && before >= 0 && before < sampler.bounds(1).longest, "starts are before");
      documents += before == 0 ? 1 : 0;
      const bool target = targets[t] == kIgnoredTarget || (targets[t] >= 0 && targets[t] < file.info().vocab_size);
      fuzz::require(target, "targets are of the vocabulary");
    }
    fuzz::require(documents <= sampler.bounds(1).count, "documents within the bound");
  }
}

}  // namespace

FP8_FUZZ(tokens) {
  const std::string path = fuzz::folder().write("tokens.h5", fuzz::text_of(data, size));
  return fuzz::judge([&] {
    const data::TokenFile file(path);
    fuzz::require(std::cmp_less_equal(file.info().tokens, size), "a token has a byte");
    const std::vector<std::int64_t> bounds = file.documents();
    fuzz::require(std::ranges::adjacent_find(bounds, std::greater_equal<>()) == bounds.end(), "documents have tokens");
    std::vector<std::uint8_t> counts(static_cast<std::size_t>(file.info().tokens));
    file.read_mask(0, counts);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.info().tokens));
    file.read(0, ids);
    for (const std::int32_t id : ids)
      fuzz::require(id >= 0 && id < file.info().vocab_size, "ids are of the vocabulary");
    (void)data::TokenFile(path, true);
    check_samples(file);
  });
}

extern "C" std::size_t FP8_MUTATOR(tokens)(std::uint8_t* data, std::size_t size, std::size_t max, unsigned) {
  return fp8::fuzz::mutate_hdf5(data, size, max, fp8::h5::kTokensMagic);
}
