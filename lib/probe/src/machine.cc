// Checks of the machine from /proc and /sys, and of mpirun.
#include "fp8/probe/machine.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "fp8/base/program.h"
#include "fp8/base/text.h"

namespace fp8::probe {
namespace {

namespace fs = std::filesystem;

const char* const kMachineGroup = "machine";

// The first line of a file; empty when the file is missing.
std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Entries of a folder, sorted; empty when the folder is missing.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) found.push_back(i->path());
  std::sort(found.begin(), found.end());
  return found;
}

// The value of a line "key : value" or "key: value".
std::optional<std::string> value_of(const std::string& line, const std::string& key) {
  if (!line.starts_with(key)) return std::nullopt;
  const auto colon = line.find_first_not_of(" \t", key.size());
  if (colon == std::string::npos || line[colon] != ':') return std::nullopt;
  const auto begin = line.find_first_not_of(" \t", colon + 1);
  return begin == std::string::npos ? std::string() : line.substr(begin);
}

Check processor(const std::string& root) {
  std::ifstream in(root + "/proc/cpuinfo");
  std::string line, model, package;
  std::set<std::pair<std::string, std::string>> cores;
  std::size_t processors = 0;
  while (std::getline(in, line)) {
    processors += value_of(line, "processor") ? 1 : 0;
    if (const auto v = value_of(line, "model name")) model = *v;
    if (const auto v = value_of(line, "physical id")) package = *v;
    if (const auto v = value_of(line, "core id")) cores.emplace(package, *v);
  }
  if (processors == 0) return {kMachineGroup, "processor", Verdict::none, "unknown", {}};
  std::string detail = model.empty() ? counted(processors, "processor") : terminal_safe(model);
  if (!cores.empty()) detail += ", " + counted(cores.size(), "core") + ", " + counted(processors, "hardware thread");
  return {kMachineGroup, "processor", Verdict::pass, detail, {}};
}

Check instruction_set(const HostCompute& compute) {
  std::string detail(name_of(compute.isa));
  if (compute.isa != compute.supported)
    detail += ", lowered by FP8_CPU_ISA; this processor has " + std::string(name_of(compute.supported));
  else if (!compute.wanted.empty() && compute.wanted != detail)
    detail += "; this processor lacks " + compute.wanted + " of FP8_CPU_ISA";
  return {kMachineGroup, "instruction set", Verdict::pass, detail, {}, std::string(name_of(compute.isa))};
}

Check bf16(const HostCompute& compute) {
  Check c{kMachineGroup, "bf16 GEMMs", Verdict::pass, "native, AVX-512 BF16", {}, compute.native ? "native" : "f32"};
  if (compute.native) return c;
  c.verdict = Verdict::none;
  if (compute.supported == Isa::avx512_bf16) {
    c.detail = std::string("as f32: ") + (compute.isa == compute.supported ? "ONEDNN_MAX_CPU_ISA" : "FP8_CPU_ISA") +
               " excludes AVX-512 BF16, which this processor has";
    return c;
  }
  c.detail = "as f32: this processor has no AVX-512 BF16";
  c.hint =
      "AVX-512 BF16 about doubles training speed: Intel Cooper Lake and Sapphire Rapids or newer, AMD Zen 4 or newer";
  return c;
}

Check threads_of(int threads) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : threads;
  Check c{
      kMachineGroup, "threads", Verdict::pass, counted(threads, "thread") + " on " + counted(cores, "processor"), {}};
  if (threads <= cores) return c;
  c.verdict = Verdict::fail;
  c.hint = "set OMP_NUM_THREADS to " + std::to_string(cores) + " at most";
  return c;
}

Check memory(const std::string& root) {
  std::ifstream in(root + "/proc/meminfo");
  std::map<std::string, std::uint64_t> kibibytes;
  for (std::string line; std::getline(in, line);) {
    for (const char* key : {"MemTotal", "MemAvailable"}) {
      const auto v = value_of(line, key);
      const auto number = v ? parse_uint64(v->substr(0, v->find(' '))) : std::nullopt;
      if (number && *number < std::uint64_t{1} << 50) kibibytes[key] = *number;
    }
  }
  if (!kibibytes.contains("MemTotal")) return {kMachineGroup, "memory", Verdict::none, "unknown", {}};
  std::string detail = human_bytes(kibibytes["MemTotal"] * 1024);
  if (kibibytes.contains("MemAvailable")) detail += ", " + human_bytes(kibibytes["MemAvailable"] * 1024) + " available";
  if (const auto limit = parse_uint64(first_line(root + "/sys/fs/cgroup/memory.max")))
    detail += ", cgroup limit " + human_bytes(*limit);
  return {kMachineGroup, "memory", Verdict::pass, detail, {}};
}

Check huge_pages(const std::string& root) {
  const std::string line = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  const auto begin = line.find('['), end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    return {kMachineGroup, "huge pages", Verdict::none, "this kernel has no transparent huge pages", {}};
  const std::string mode = terminal_safe(line.substr(begin + 1, end - begin - 1));
  if (mode != "never") return {kMachineGroup, "huge pages", Verdict::pass, "transparent, " + mode, {}};
  return {kMachineGroup, "huge pages", Verdict::fail, "disabled: matrix multiply on the CPU is slower",
          "as root: echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"};
}

Check network(const std::string& root) {
  std::string detail;
  for (const fs::path& interface : entries(root + "/sys/class/net")) {
    if (first_line(interface / "operstate") != "up") continue;
    detail += (detail.empty() ? "" : ", ") + terminal_safe(interface.filename().string());
    const auto megabits = parse_int64(first_line(interface / "speed"));
    if (megabits && *megabits > 0) detail += " " + format_short(static_cast<double>(*megabits) / 1000, 3) + " Gb/s";
  }
  if (!detail.empty()) return {kMachineGroup, "network", Verdict::pass, detail, {}};
  return {kMachineGroup, "network", Verdict::none, "no interface is up: ranks on this machine only", {}};
}

Check infiniband(const std::string& root) {
  std::string up, down;
  for (const fs::path& card : entries(root + "/sys/class/infiniband")) {
    for (const fs::path& port : entries(card / "ports")) {
      const std::string name = terminal_safe(card.filename().string() + " port " + port.filename().string());
      const bool active = first_line(port / "state").find("ACTIVE") != std::string::npos;
      std::string& list = active ? up : down;
      list += (list.empty() ? "" : ", ") + name;
      if (active) list += " " + terminal_safe(first_line(port / "rate"));
    }
  }
  if (up.empty() && down.empty()) return {kMachineGroup, "InfiniBand", Verdict::none, "no card", {}};
  if (down.empty()) return {kMachineGroup, "InfiniBand", Verdict::pass, up, {}};
  return {kMachineGroup, "InfiniBand", Verdict::fail, (up.empty() ? "" : up + "; ") + "not active: " + down,
          "check the cable and the subnet manager with ibstat"};
}

// ": " and the first line that contains a letter; empty without one.
std::string first_words(const std::string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const bool words =
        std::any_of(line.begin(), line.end(), [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; });
    if (words) return ": " + terminal_safe(excerpt(line));
    begin = end + 1;
  }
  return {};
}

}  // namespace

std::vector<Check> machine_checks(const std::string& root, const HostCompute& compute) {
  return {processor(root), instruction_set(compute), bf16(compute), threads_of(compute.threads),
          memory(root),    huge_pages(root),         network(root), infiniband(root)};
}

Check mpi_check(const std::string& library, const std::string& mpirun) {
  Check c{"libraries", "MPI", Verdict::pass, library + ", " + terminal_safe(mpirun), {}};
  constexpr double kPatience = 60;
  const auto fail = [&](const std::string& why, const std::string& hint) {
    c.verdict = Verdict::fail;
    c.detail += " -n 2 true: " + why;
    c.hint = hint;
    return c;
  };
  const char* const by_hand = "run by hand: mpirun -n 2 true";
  try {
    const auto result = run_program({mpirun, "-n", "2", "true"}, "", kPatience);
    if (!result) return fail("no such program", by_hand);
    if (result->status == 0) {
      c.detail += ", starts processes";
      return c;
    }
    if (result->err.find("as root") != std::string::npos)
      return fail("refuses to run as root",
                  "use another account; or, where root is the only account, as in a container: "
                  "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
    if (result->err.find("slots") != std::string::npos)
      return fail("has fewer than 2 slots", "use mpirun --oversubscribe or a host file with slots");
    return fail("status " + std::to_string(result->status) + first_words(result->err), by_hand);
  } catch (const Error& e) {
    return fail(e.what(), by_hand);
  }
}

int nvidia_cards(const std::string& root) {
  int cards = 0;
  for (const fs::path& card : entries(root + "/sys/bus/pci/devices")) {
    const std::string kind = first_line(card / "class");
    cards += first_line(card / "vendor") == "0x10de" && (kind.starts_with("0x0300") || kind.starts_with("0x0302"));
  }
  return cards;
}

}  // namespace fp8::probe
