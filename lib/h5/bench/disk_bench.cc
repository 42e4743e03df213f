// Speed of checkpoint files beside that of the disk: a file of plain writes and one fsync, as dd makes it, and plain
// reads of a file that is not cached. 1.5 GB, or FP8_BENCH_MB, in the folder TMPDIR, which should be on the disk in
// question. Written in turns, so that both meet the same machine.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/h5/types.h"
#include "fp8/h5/user_block.h"
#include "fp8/h5/writer.h"

namespace fp8::h5 {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr std::int64_t kTensor = std::int64_t{1} << 26;  // bytes

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Where files go, and how many tensors they have.
struct Place {
  std::filesystem::path folder;
  std::int64_t tensors = 24;
  std::vector<std::byte> bytes = std::vector<std::byte>(kTensor);

  Place() {
    std::string name = (std::filesystem::temp_directory_path() / "fp8-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(name + ": cannot create");
    folder = name;
    const char* megabytes = std::getenv("FP8_BENCH_MB");  // NOLINT(concurrency-mt-unsafe): no threads
    if (megabytes != nullptr) tensors = std::max<std::int64_t>(1, parse_int64(megabytes).value_or(1536) >> 6);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
  }
  ~Place() { std::filesystem::remove_all(folder); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  std::string plain() const { return folder / "plain"; }
  std::string ours() const { return folder / "ours"; }
  double size() const { return static_cast<double>(tensors * kTensor); }
};

void write_plain(const Place& place) {
  std::filesystem::remove(place.plain());
  File file = File::create_exclusive(place.plain());
  for (std::int64_t i = 0; i < place.tensors; ++i) {
    for (std::size_t at = 0; at < place.bytes.size(); at += kPiece)
      file.write_all(std::span(place.bytes).subspan(at, kPiece));
  }
  file.sync();
  file.close();
}

void write_ours(const Place& place) {
  std::filesystem::remove(place.ours());
  Writer writer(place.ours(), kCheckpointMagic);
  for (std::int64_t i = 0; i < place.tensors; ++i)
    writer.dataset("weights/" + std::to_string(i), DType::u8, {&kTensor, 1}, place.bytes);
  writer.finish();
}

void read_plain(const Place& place) {
  std::vector<std::byte> buffer(kPiece);
  File file = File::open_read(place.plain());
  while (file.read_some(buffer) > 0) benchmark::ClobberMemory();
}

void forget(const std::string& path) { drop_page_cache(File::open_read(path).fd()); }

// Times both in turns; reports the better of each, and their ratio.
void measure(benchmark::State& state, const Place& place, const std::function<void()>& ours,
             const std::function<void()>& plain, const std::function<void()>& before) {
  double fastest = 1e9, fastest_plain = 1e9;
  const auto timed = [&](const std::function<void()>& work) {
    before();
    const double begin = seconds();
    work();
    return seconds() - begin;
  };
  for (auto _ : state) {
    fastest_plain = std::min(fastest_plain, timed(plain));
    const double took = timed(ours);
    fastest = std::min(fastest, took);
    state.SetIterationTime(took);
  }
  state.counters["GB/s"] = place.size() / fastest * 1e-9;
  state.counters["plain_GB/s"] = place.size() / fastest_plain * 1e-9;
  state.counters["of_plain"] = fastest_plain / fastest;
}

void write_with_digests(benchmark::State& state) {
  const Place place;
  measure(
      state, place, [&] { write_ours(place); }, [&] { write_plain(place); }, [] {});
}

void verify(benchmark::State& state) {
  const Place place;
  write_plain(place);
  write_ours(place);
  measure(
      state, place, [&] { benchmark::DoNotOptimize(verify_file(place.ours(), kCheckpointMagic)); },
      [&] { read_plain(place); },
      [&] {
        forget(place.plain());
        forget(place.ours());
      });
}

BENCHMARK(write_with_digests)->Iterations(3)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(verify)->Iterations(3)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fp8::h5

BENCHMARK_MAIN();
