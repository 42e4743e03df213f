// Token files, fp8-tokens(5): all tokens, masks and documents of an accepted file can be read and are in range.
#include "fp8/data/tokens.h"

#include <utility>
#include <vector>

#include "fp8/h5/types.h"
#include "fuzz.h"
#include "hdf5_repair.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp8;
  const std::string path = fuzz::folder().write("tokens.h5", fuzz::text_of(data, size));
  return fuzz::judge([&] {
    const data::TokenFile file(path);
    fuzz::require(std::cmp_less_equal(file.info().tokens, size), "a token has a byte");
    for (std::int64_t i = 0; i < file.info().documents; ++i)
      fuzz::require(file.document(i) < file.document(i + 1), "documents have tokens");
    std::vector<std::uint8_t> counts(static_cast<std::size_t>(file.info().tokens));
    file.read_mask(0, counts);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.info().tokens));
    file.read(0, ids);
    for (const std::int32_t id : ids)
      fuzz::require(id >= 0 && id < file.info().vocab_size, "ids are of the vocabulary");
    (void)data::TokenFile(path, true);
  });
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max, unsigned) {
  return fp8::fuzz::mutate_hdf5(data, size, max, fp8::h5::kTokensMagic);
}
