// Affinity and topology as Linux reports them.
#include "cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <tuple>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"

namespace fp8::launch {
namespace {

constexpr int kMaxCpus = 1 << 16;

// A set of CPUs that is larger than cpu_set_t.
class CpuSet {
 public:
  CpuSet() : set_(CPU_ALLOC(kMaxCpus)) {
    if (set_ == nullptr) throw_errno("cores", "", ENOMEM);
    CPU_ZERO_S(bytes(), set_);
  }
  ~CpuSet() { CPU_FREE(set_); }
  CpuSet(const CpuSet&) = delete;
  CpuSet& operator=(const CpuSet&) = delete;
  static std::size_t bytes() { return CPU_ALLOC_SIZE(kMaxCpus); }
  cpu_set_t* get() { return set_; }

 private:
  cpu_set_t* set_;
};

// The first number in a file of the topology of a CPU; `otherwise` if there is none.
int topology(int cpu, const std::string& file, int otherwise) {
  try {
    const std::string text =
        read_text_file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + file, 1U << 16U);
    const auto number = parse_int64(std::string_view(text).substr(0, text.find_first_not_of("0123456789")));
    return number && *number <= kMaxCpus ? static_cast<int>(*number) : otherwise;
  } catch (const Error&) {
    return otherwise;
  }
}

}  // namespace

std::vector<HardwareThread> usable_threads() {
  CpuSet set;
  if (::sched_getaffinity(0, CpuSet::bytes(), set.get()) != 0) throw_errno("cores", "cannot be listed", errno);
  std::vector<HardwareThread> threads;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (!CPU_ISSET_S(cpu, CpuSet::bytes(), set.get())) continue;
    threads.push_back({cpu, topology(cpu, "thread_siblings_list", cpu), topology(cpu, "physical_package_id", 0)});
  }
  return threads;
}

std::vector<std::vector<int>> share_cores(std::span<const HardwareThread> threads, std::size_t jobs) {
  if (threads.size() < jobs)
    throw Error(std::to_string(jobs) + " jobs need cores of their own, and there are " + std::to_string(threads.size()),
                {{"jobs", std::to_string(threads.size()) + " or fewer"}});
  std::map<std::tuple<int, int, int>, std::vector<int>> units;  // by socket and core, and by CPU if cores are divided
  for (const bool whole : {true, false}) {
    units.clear();
    for (const HardwareThread& t : threads) units[{t.package, t.core, whole ? 0 : t.cpu}].push_back(t.cpu);
    if (units.size() >= jobs) break;
  }
  std::vector<std::vector<int>> parts(jobs);
  std::size_t i = 0;
  for (const auto& [key, cpus] : units) {
    std::vector<int>& part = parts[i++ * jobs / units.size()];
    part.insert(part.end(), cpus.begin(), cpus.end());
  }
  for (std::vector<int>& part : parts) std::sort(part.begin(), part.end());
  return parts;
}

void run_on(std::span<const int> cpus) {
  CpuSet set;
  for (const int cpu : cpus) CPU_SET_S(cpu, CpuSet::bytes(), set.get());
  if (::sched_setaffinity(0, CpuSet::bytes(), set.get()) != 0) throw_errno("cores", "cannot be set", errno);
}

std::string cpu_list(std::span<const int> cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end - i > 1) text += "-" + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace fp8::launch
