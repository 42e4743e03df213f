// The identity of a tokenizer.json: the digest does not depend on white space.
#include "fp8/hf/tokenizer.h"

#include "fp8/json/json.h"
#include "fuzz.h"

FP8_FUZZ(tokenizer) {
  using namespace fp8;
  return fuzz::judge([&] {
    const json::Value value = json::parse(fuzz::text_of(data, size), "input");
    const hf::TokenizerIdentity identity = hf::tokenizer_identity(value, "input");
    fuzz::require(identity.digest.size() == 32 && identity.vocab_size > 0, "a digest and a size");
    fuzz::require(hf::parse_tokenizer_identity(json::dump(value, 2), "again").digest == identity.digest,
                  "white space does not matter");
  });
}
