// Speed of encoding on one core, which tests/bench/token_rates.py compares with Hugging Face's library: the text of
// share/text as 7,222 documents, with a filled and with an empty cache, and as one document.
#include <benchmark/benchmark.h>

#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/token/tokenizer.h"

namespace fp8::token {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 24U;

// The paragraphs of the text, or the whole text.
std::vector<std::string> documents(bool whole) {
  const std::string text = read_text_file("share/text/tinyshakespeare.txt", kMost);
  if (whole) return {text};
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find("\n\n", at), text.size());
    if (end > at) found.push_back(text.substr(at, end - at));
    at = end + 2;
  }
  return found;
}

void encode(benchmark::State& state, const std::string& kind, bool whole, bool fresh) {
  const Tokenizer tokenizer("tests/golden/tokenizers/" + kind);
  const std::vector<std::string> texts = documents(whole);
  std::size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  Encoder encoder(tokenizer);
  std::vector<std::uint32_t> ids;
  for (auto _ : state) {
    if (fresh) encoder = Encoder(tokenizer);
    for (const std::string& text : texts) {
      ids.clear();
      encoder.encode(text, true, ids);
      benchmark::DoNotOptimize(ids.data());
    }
  }
  state.counters["bytes/s"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate);
}

void add_all() {
  for (const char* kind : {"gpt2", "llama2", "llama2-metaspace", "llama3", "qwen2"}) {
    const std::string name = kind;
    benchmark::RegisterBenchmark((name + "/documents").c_str(), encode, name, false, false);
    benchmark::RegisterBenchmark((name + "/first_pass").c_str(), encode, name, false, true);
    benchmark::RegisterBenchmark((name + "/one_text").c_str(), encode, name, true, false);
  }
}

}  // namespace
}  // namespace fp8::token

int main(int argc, char** argv) {
  fp8::token::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
