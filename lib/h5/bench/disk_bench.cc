// Throughput of checkpoint files compared with the disk. Writing: with digests and one fsync, compared with plain
// writes and one fsync, as dd makes them. Verifying and loading (each tensor into memory, its bytes compared with its
// digest) of files that are not cached, compared with plain reads of the same number of bytes into memory of the same
// size. 1.5 GB, or FP8_BENCH_MB, in the folder TMPDIR, which should be on the disk to measure. A disk's speed may
// change from second to second: the two alternate, the order changes too, and each ratio is of two consecutive
// measurements. Processor time, user and system, is stable; it is reported per gigabyte.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/base/text.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/user_block.h"
#include "fp8/h5/writer.h"

namespace fp8::h5 {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr std::int64_t kTensor = std::int64_t{1} << 26;  // bytes
constexpr int kPairs = 6;

// The number of tensors per file, and memory of the same size.
struct DeviceType {
  ScratchFolder folder;
  std::int64_t tensors = 24;
  std::vector<std::byte> tensor = std::vector<std::byte>(kTensor);
  std::vector<std::byte> memory;

  DeviceType() {
    const char* megabytes = std::getenv("FP8_BENCH_MB");  // NOLINT(concurrency-mt-unsafe): no threads
    if (megabytes != nullptr) tensors = std::max<std::int64_t>(1, parse_int64(megabytes).value_or(1536) >> 6);
    for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<std::byte>(i * i >> 7);
  }
  std::string plain() const { return folder.at("plain"); }
  std::string ours() const { return folder.at("ours"); }
  std::size_t bytes() const { return static_cast<std::size_t>(tensors * kTensor); }
  std::span<std::byte> room(std::int64_t i) {
    return std::span(memory).subspan(static_cast<std::size_t>(i * kTensor), kTensor);
  }
};

void write_plain(const DeviceType& place) {
  File file = File::create_exclusive(place.plain());
  for (std::int64_t i = 0; i < place.tensors; ++i) {
    for (std::size_t at = 0; at < place.tensor.size(); at += kPiece)
      file.write_all(std::span(place.tensor).subspan(at, kPiece));
  }
  file.sync();
  file.close();
}

// The work of finish() after the writes is measured by verify, except for the user block.
void write_ours(const DeviceType& place) {
  Writer writer(place.ours(), kCheckpointMagic);
  for (std::int64_t i = 0; i < place.tensors; ++i)
    writer.dataset("weights/" + std::to_string(i), DType::u8, {&kTensor, 1}, place.tensor);
  writer.sync();
}

void make_both(const DeviceType& place) {
  write_plain(place);
  Writer writer(place.ours(), kCheckpointMagic);
  for (std::int64_t i = 0; i < place.tensors; ++i)
    writer.dataset("weights/" + std::to_string(i), DType::u8, {&kTensor, 1}, place.tensor);
  writer.finish();
}

void read_plain(const DeviceType& place) {
  std::vector<std::byte> buffer(kPiece);
  File file = File::open_read(place.plain());
  while (file.read_some(buffer) > 0) benchmark::ClobberMemory();
}

void load_plain(DeviceType& place) {
  File file = File::open_read(place.plain());
  for (std::int64_t i = 0; i < place.tensors; ++i) file.read_exact(place.room(i));
}

// Loads as a resumed run does: verifies the whole file, and copies its tensors to their buffers.
void load_ours(DeviceType& place) {
  std::int64_t i = 0;
  verify_file(Reader(place.ours(), kCheckpointMagic), [&](const Entry&) { return place.room(i++); });
}

struct Cost {
  double wall = 0, processor = 0;  // seconds
};

Cost now() {
  rusage r{};
  ::getrusage(RUSAGE_SELF, &r);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
          seconds(r.ru_utime) + seconds(r.ru_stime)};
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.size() % 2 == 1 ? x[x.size() / 2] : 0.5 * (x[x.size() / 2 - 1] + x[x.size() / 2]);
}

using Work = std::function<void()>;

// Pairs of both, each after `before`; the median of their ratios, with the minimum and the maximum.
void measure(benchmark::State& state, const DeviceType& place, const Work& ours, const Work& plain,
             const Work& before) {
  const auto cost = [&](const Work& work) {
    before();
    const Cost begin = now();
    work();
    const Cost end = now();
    return Cost{end.wall - begin.wall, end.processor - begin.processor};
  };
  const double gigabytes = static_cast<double>(place.bytes()) * 1e-9;
  std::vector<double> ratio, speed, speed_plain, processor, processor_plain;
  for (auto _ : state) {
    const bool first = ratio.size() % 2 == 0;
    Cost theirs;
    if (!first) theirs = cost(plain);
    const Cost mine = cost(ours);
    if (first) theirs = cost(plain);
    ratio.push_back(theirs.wall / mine.wall);
    speed.push_back(gigabytes / mine.wall);
    speed_plain.push_back(gigabytes / theirs.wall);
    processor.push_back(mine.processor / gigabytes);
    processor_plain.push_back(theirs.processor / gigabytes);
    state.SetIterationTime(mine.wall);
  }
  state.counters["of_plain"] = median(ratio);
  state.counters["least"] = *std::min_element(ratio.begin(), ratio.end());
  state.counters["most"] = *std::max_element(ratio.begin(), ratio.end());
  state.counters["GB/s"] = median(speed);
  state.counters["plain_GB/s"] = median(speed_plain);
  state.counters["processor_s_per_GB"] = median(processor);
  state.counters["plain_processor_s_per_GB"] = median(processor_plain);
}

void forget(const std::string& path) { drop_page_cache(File::open_read(path).fd()); }

void write_with_digests(benchmark::State& state) {
  const DeviceType place;
  measure(
      state, place, [&] { write_ours(place); }, [&] { write_plain(place); },
      [&] {
        remove_tree(place.plain());
        remove_tree(place.ours());
        ::sync();  // removed files cost no time in the next measurement
      });
}

void verify(benchmark::State& state) {
  const DeviceType place;
  make_both(place);
  measure(
      state, place, [&] { verify_file(Reader(place.ours(), kCheckpointMagic)); }, [&] { read_plain(place); },
      [&] {
        forget(place.plain());
        forget(place.ours());
      });
}

void load_with_digests(benchmark::State& state) {
  DeviceType place;
  make_both(place);
  place.memory.resize(place.bytes());
  measure(
      state, place, [&] { load_ours(place); }, [&] { load_plain(place); },
      [&] {
        forget(place.plain());
        forget(place.ours());
      });
}

BENCHMARK(write_with_digests)->Iterations(kPairs)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(verify)->Iterations(kPairs)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(load_with_digests)->Iterations(kPairs)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fp8::h5

BENCHMARK_MAIN();
