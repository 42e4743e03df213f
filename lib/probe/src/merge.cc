// The report of a job from those of its ranks. Nothing is measured here.
#include <algorithm>
#include <cmath>
#include <set>

#include "fp8/base/text.h"
#include "fp8/probe/job.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/mpi_session.h"

namespace fp8::probe {
namespace {

const char* const kJob = "job";
constexpr double kMostSeconds = 1;     // by which clocks may differ
constexpr std::int64_t kSmall = 1024;  // bytes of an all-reduce whose time is its latency, at most

// "node-1, node-2, node-3, node-4 and 9 more".
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i > 0 ? ", " : "") + names[i];
  return names.size() > kMost ? text + " and " + std::to_string(names.size() - kMost) + " more" : text;
}

// A machine and its ranks, in their order.
struct HostRanks {
  std::string name;
  std::vector<std::size_t> ranks;
};

std::vector<HostRanks> ranks_by_host(const std::vector<RankReport>& reports) {
  std::vector<HostRanks> hosts;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    auto host = std::ranges::find(hosts, reports[rank].host, &HostRanks::name);
    if (host == hosts.end()) host = hosts.insert(host, {reports[rank].host, {}});
    host->ranks.push_back(rank);
  }
  return hosts;
}

// The ranks of a host, their threads and processors.
Check check_of_ranks(const std::vector<RankReport>& reports, const HostRanks& host) {
  std::vector<std::string> processors;
  for (const RankReport& r : reports) processors.push_back(r.host + " " + r.processors);
  const auto first = host.ranks.front();
  const RankReport& r = reports[first];
  Check c{kJob, "ranks", Verdict::pass, {}, {}};
  const bool alone = host.ranks.size() > 1 && train::ranks_on_processors(processors, first) == 1;
  c.detail = counted(std::ssize(host.ranks), "rank") + " of " + counted(r.threads, "thread") +
             (alone ? ", each on " : " on ") + counted(r.processor_count, "processor") + (alone ? " of its own" : "");
  const auto crowded = [&](std::size_t rank) {
    return train::ranks_on_processors(processors, rank) * reports[rank].threads > reports[rank].processor_count;
  };
  if (std::ranges::none_of(host.ranks, crowded)) return c;
  c.verdict = Verdict::fail;
  c.detail += ": more threads than processors, which slows them";
  c.hint =
      "start fewer ranks, or set OMP_NUM_THREADS to a smaller number; or let mpirun bind ranks, --map-by slot:PE=N";
  return c;
}

bool same_finding(const Check& a, const Check& b) {
  return a.verdict == b.verdict && a.detail == b.detail && a.hint == b.hint;
}

// A check of one host, or of one rank of it if its ranks differ.
struct Entry {
  std::string where;
  const Check* check;
};

// The entries of the check `name`. A host without this check has the entry `absent`.
std::vector<Entry> entries_of(const std::vector<RankReport>& reports, const std::vector<HostRanks>& hosts,
                              const std::string& name, const Check& absent) {
  std::vector<Entry> all;
  for (const HostRanks& host : hosts) {
    std::vector<Entry> own;
    for (const std::size_t rank : host.ranks) {
      const std::vector<Check>& checks = reports[rank].diagnosis.checks;
      const auto check = std::ranges::find(checks, name, &Check::name);
      if (check != checks.end()) own.push_back({host.name + " rank " + std::to_string(rank), &*check});
    }
    if (own.empty()) own.push_back({host.name, &absent});
    const auto differs = [&](const Entry& e) { return !same_finding(*e.check, *own.front().check); };
    if (std::ranges::none_of(own, differs)) own = {{host.name, own.front().check}};
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// What to do if `values`, the different Check::common of a check, must be equal.
std::string hint_of(const std::string& name, const std::set<std::string>& values) {
  // The alphabetical order of instruction sets is that of enum Isa.
  if (name == "instruction set") return "set FP8_CPU_ISA=" + *values.begin() + " for all ranks, or use equal machines";
  if (name == "bf16 GEMMs") return "make the instruction set equal, or unset ONEDNN_MAX_CPU_ISA if only that differs";
  if (name == "version") return "use the same build on all hosts";
  return "all hosts need the same";
}

int severity(Verdict verdict) { return verdict == Verdict::fail ? 2 : verdict == Verdict::none ? 1 : 0; }

// One check from those of all hosts; `conflict` is set if ranks differ in what they need in common.
Check merged(const std::vector<Entry>& entries, bool& conflict) {
  const Check& first = *entries.front().check;
  Check c{first.group, first.name, first.verdict, first.detail, first.hint};
  std::set<std::string> values;
  for (const auto& [where, check] : entries) {
    if (!check->common.empty()) values.insert(check->common);
    const auto same = [&, &one = *check](const Finding& f) {
      return f.verdict == one.verdict && f.detail == one.detail && f.hint == one.hint;
    };
    auto finding = std::ranges::find_if(c.findings, same);
    if (finding == c.findings.end())
      finding = c.findings.insert(finding, {{}, check->verdict, check->detail, check->hint});
    finding->hosts.push_back(where);
    if (severity(check->verdict) > severity(c.verdict)) c.verdict = check->verdict, c.hint = check->hint;
  }
  conflict = values.size() > 1;
  if (c.findings.size() == 1) {
    c.findings.clear();
    return c;
  }
  c.detail.clear();
  for (const Finding& f : c.findings) c.detail += (c.detail.empty() ? "" : "; ") + listed(f.hosts) + ": " + f.detail;
  if (conflict) c.verdict = Verdict::fail, c.hint = hint_of(c.name, values);
  return c;
}

// The checks of all reports by name, in the order of the first report that has them, each group together.
std::vector<std::pair<std::string, std::string>> groups_and_names(const std::vector<RankReport>& reports) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const RankReport& r : reports) {
    for (const Check& c : r.diagnosis.checks) {
      const std::pair<std::string, std::string> one{c.group, c.name};
      if (std::ranges::find(all, one) != all.end()) continue;
      auto after = all.end();
      for (auto i = all.begin(); i != all.end(); ++i)
        if (i->first == c.group) after = std::next(i);
      all.insert(after, one);
    }
  }
  return all;
}

Check check_of_clocks(const std::vector<HostRanks>& hosts, const Clocks& clocks) {
  Check c{kJob, "clocks", Verdict::pass, {}, {}};
  double most = 0;
  std::vector<std::string> wrong;
  for (const HostRanks& host : hosts) {
    const double offset = clocks.offsets.at(host.ranks.front()), size = std::fabs(offset);
    most = std::max(most, size);
    if (size - clocks.error > kMostSeconds)
      wrong.push_back(host.name + " " + human_seconds(size) + (offset > 0 ? " ahead" : " behind"));
  }
  c.detail = "equal within " + format_short((most + clocks.error) * 1e3, 2) + " ms";
  if (wrong.empty()) return c;
  c.verdict = Verdict::fail;
  c.detail = "differ from that of " + hosts.front().name + ": " + listed(wrong);
  c.hint = "synchronize the clocks, as by chrony: times in logs are wrong, and programs compare times of files";
  return c;
}

Check check_of_folder(const std::vector<RankReport>& reports, const std::vector<HostRanks>& hosts,
                      const Measurements& measured) {
  Check c{kJob, "folder", Verdict::fail, {}, {}};
  if (measured.out.empty())
    return {kJob, "folder", Verdict::none, "not checked", "name the folder of the run by --out"};
  std::vector<std::string> blind;
  std::string why;
  for (const HostRanks& host : hosts) {
    const auto rank =
        std::ranges::find_if(host.ranks, [&](std::size_t one) { return !measured.folder.unseen.at(one).empty(); });
    if (rank == host.ranks.end()) continue;
    blind.push_back(host.name);
    if (why.empty()) why = measured.folder.unseen[*rank];
  }
  if (!measured.folder.unwritable.empty()) {
    c.detail = measured.folder.unwritable;
    c.hint = "give a folder in which " + reports[0].host + " may write";
    return c;
  }
  if (!blind.empty()) {
    c.detail =
        measured.out + ": what " + reports[0].host + " writes there is not seen by " + listed(blind) + " (" + why + ")";
    c.hint = "all hosts need one folder, on a file system that they share, mounted under the same path";
    return c;
  }
  c.verdict = Verdict::pass;
  const std::int64_t least = std::ranges::min(measured.free);
  c.detail = measured.out + ": " +
             (least < 0 ? "free space unknown" : human_bytes(static_cast<std::uint64_t>(least)) + " free") +
             (hosts.size() > 1 ? ", the same folder on " + counted(std::ssize(hosts), "host") : "");
  return c;
}

Check check_of(const AllReduce& sum, std::size_t hosts) {
  const bool large = sum.bytes > kSmall, mpi = sum.library == "MPI";
  Check c{kJob, std::string(large ? "large" : "small") + (mpi ? " all-reduce" : " NCCL all-reduce"),
          sum.exact ? Verdict::pass : Verdict::fail};
  c.detail = human_bytes(static_cast<std::uint64_t>(sum.bytes)) + " in " + format_short(sum.seconds * 1e3, 3) + " ms";
  if (large) c.detail += ", bus bandwidth " + format_short(sum.bytes_per_s() / 1e9, 3) + " GB/s";
  c.detail += ", between " + (mpi && hosts > 1 ? "one rank of each host" : counted(sum.ranks, "rank"));
  if (sum.exact) return c;
  c.detail += ": wrong sums";
  c.hint = sum.library + " or the network damages data: run fp8-doctor on fewer hosts to find the one";
  return c;
}

}  // namespace

double AllReduce::bytes_per_s() const { return 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes) / seconds; }

int Job::ranks() const {
  int all = 0;
  for (const Host& host : hosts) all += host.ranks;
  return all;
}

std::string why_shared(const std::vector<RankReport>& reports) {
  std::vector<std::string> cards;
  for (const RankReport& r : reports) cards.push_back(r.card);
  return train::why_shared(cards, *comm::solo());
}

Diagnosis merge(const std::vector<RankReport>& reports, const Measurements& measured) {
  const std::vector<HostRanks> hosts = ranks_by_host(reports);
  if (reports.size() == 1) {
    Diagnosis one = reports[0].diagnosis;
    if (!measured.out.empty()) one.checks.push_back(check_of_folder(reports, hosts, measured));
    return one;
  }
  std::vector<RankReport> all = reports;
  const bool compared = !reports[0].diagnosis.checks.empty();  // false: versions differ
  Diagnosis job{.device = all.front().diagnosis.device, .native = true, .emulated = true, .job = Job()};
  for (RankReport& r : all) {
    job.native &= r.diagnosis.native;
    if (r.diagnosis.device != job.device) job.device = "different devices";
    r.diagnosis.checks.push_back({kJob, "version", Verdict::pass, r.version, {}, r.version});
  }
  for (const HostRanks& host : hosts) {
    job.emulated &= all[host.ranks.front()].diagnosis.emulated;
    job.job->hosts.push_back({host.name, static_cast<int>(host.ranks.size())});
    if (compared) all[host.ranks.front()].diagnosis.checks.push_back(check_of_ranks(reports, host));
  }
  const auto add = [&](Check check, bool conflict) {
    if (conflict) job.job->conflicts.push_back(check.name);
    job.checks.push_back(std::move(check));
  };
  for (const auto& [group, name] : groups_and_names(all)) {
    const Check absent{group, name, Verdict::none, "absent", {}};
    bool conflict = false;
    Check one = merged(entries_of(all, hosts, name, absent), conflict);
    add(std::move(one), conflict);
  }
  if (const std::string shared = why_shared(reports); !shared.empty())
    add({kJob, "GPUs", Verdict::fail, shared, "start as many ranks on each host as it has GPUs"}, true);
  if (hosts.size() > 1 && compared) add(check_of_clocks(hosts, measured.clocks), false);
  if (compared) {
    Check folder = check_of_folder(all, hosts, measured);
    const bool conflict = folder.verdict == Verdict::fail;
    add(std::move(folder), conflict);
  }
  for (const AllReduce& sum : measured.all_reduces) add(check_of(sum, hosts.size()), !sum.exact);
  job.job->all_reduces = measured.all_reduces;
  return job;
}

std::vector<std::string> lines_of(const Check& check, std::size_t most) {
  if (check.findings.empty()) return {check.detail};
  std::vector<std::string> lines;
  for (const Finding& f : check.findings) {
    if (lines.size() == most) {
      lines.push_back("and " + counted(std::ssize(check.findings) - std::ssize(lines), "other finding") +
                      ", see --json");
      break;
    }
    lines.push_back(listed(f.hosts) + ": " + f.detail);
  }
  return lines;
}

}  // namespace fp8::probe
