// The tokenizer that a token file is made with.
#include "fp8/base/file.h"
#include "fp8/data/tokenize.h"
#include "fp8/hf/tokenizer.h"
#include "fp8/token/tokenizer.h"

namespace fp8::data {

DeclaredTokenizer declared_tokenizer(const std::string& name) {
  if (name == "bytes") return {{}, name, 256};
  const std::string file = token::tokenizer_file(name);
  const hf::TokenizerIdentity identity =
      hf::parse_tokenizer_identity(read_text_file(file, hf::kMaxTokenizerBytes), file);
  return {file, identity.digest, identity.vocab_size};
}

}  // namespace fp8::data
