// What the ranks of a job measure together, and how their reports reach rank 0.
#include "fp8/probe/job.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "all_reduces.h"
#include "fp8/base/file.h"
#include "fp8/comm/hosts.h"
#include "fp8/device/runtime.h"
#include "fp8/json/json.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/mpi_session.h"

namespace fp8::probe {
namespace {

using comm::Communicator;
using comm::Reduce;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The report of this rank, made by its checks.
RankReport own_report(Environment around, const std::string& host, const std::string& version) {
  RankReport r{.host = host, .version = version, .processors = train::own_processors()};
  r.processor_count = omp_get_num_procs();
  r.threads = omp_get_max_threads();
  const int devices = device::cuda_device_count(), index = train::gpu_of(around.local_rank, devices);
  if (index < devices) r.card = device::cuda_identity(index);
  r.diagnosis = diagnose(around);
  return r;
}

// Each rank reads its clock between two times of rank 0. The best of some rounds counts.
Clocks compare_clocks(Communicator& world) {
  constexpr int kRounds = 5;
  Clocks best{.offsets = {}, .error = std::numeric_limits<double>::infinity()};
  const auto ranks = static_cast<std::size_t>(world.size());
  for (int round = 0; round < kRounds; ++round) {
    const double before = seconds_since_1970();
    world.barrier();
    std::vector<double> times(ranks + 2);  // of each rank, and twice of rank 0
    times[static_cast<std::size_t>(world.rank())] = seconds_since_1970();
    if (world.rank() == 0) times[ranks] = before;
    world.all_reduce(std::span(times), Reduce::sum);
    if (world.rank() == 0) times[ranks + 1] = seconds_since_1970();
    world.broadcast(std::as_writable_bytes(std::span(times)), 0);
    const double middle = (times[ranks] + times[ranks + 1]) / 2, error = (times[ranks + 1] - times[ranks]) / 2;
    if (error >= best.error) continue;
    best = {{}, error};
    for (std::size_t rank = 0; rank < ranks; ++rank) best.offsets.push_back(rank == 0 ? 0 : times[rank] - middle);
  }
  return best;
}

// Looks for the folder of the run on all ranks.
void view(Communicator& world, const std::string& out, Measurements& measured) {
  const auto rank = static_cast<std::size_t>(world.rank());
  measured.out = out;
  measured.folder = comm::view_folder(world, out);
  measured.free.assign(static_cast<std::size_t>(world.size()), 0);
  const std::uint64_t free = free_space(comm::nearest_folder(out));
  measured.free[rank] = free == kUnknownSpace ? -1 : static_cast<std::int64_t>(free);
  world.all_reduce(std::span(measured.free), Reduce::sum);
}

}  // namespace

std::string text_of(const RankReport& r) {
  json::Array checks;
  for (const Check& c : r.diagnosis.checks) {
    checks.push_back(json::object({{"group", c.group},
                                   {"name", c.name},
                                   {"verdict", name_of(c.verdict)},
                                   {"detail", c.detail},
                                   {"hint", c.hint},
                                   {"common", c.common}}));
  }
  return json::dump(json::object({{"host", r.host},
                                  {"version", r.version},
                                  {"processors", r.processors},
                                  {"processor_count", r.processor_count},
                                  {"threads", r.threads},
                                  {"card", r.card},
                                  {"device", r.diagnosis.device},
                                  {"native", r.diagnosis.native},
                                  {"emulated", r.diagnosis.emulated},
                                  {"checks", std::move(checks)}}));
}

RankReport report_of(const std::string& text) {
  const std::string what = "the report of a rank";
  const json::Value value = json::parse(text, what);
  const json::Object& o = value.as_object();
  RankReport r{.host = o.get_string("host", what),
               .version = o.get_string("version", what),
               .processors = o.get_string("processors", what),
               .processor_count = static_cast<int>(o.get_int("processor_count", what)),
               .threads = static_cast<int>(o.get_int("threads", what)),
               .card = o.get_string("card", what)};
  r.diagnosis.device = o.get_string("device", what);
  r.diagnosis.native = o.get_bool("native", what);
  r.diagnosis.emulated = o.get_bool("emulated", what);
  for (const json::Value& check : o.get_array("checks", what)) {
    const json::Object& c = check.as_object();
    const std::string& verdict = c.get_string("verdict", what);
    const auto text_in = [&](const char* key) { return c.get_string(key, what); };
    r.diagnosis.checks.push_back({text_in("group"), text_in("name"),
                                  verdict == "pass"   ? Verdict::pass
                                  : verdict == "fail" ? Verdict::fail
                                                      : Verdict::none,
                                  text_in("detail"), text_in("hint"), text_in("common")});
  }
  return r;
}

Diagnosis diagnose_job(Communicator& world, Environment around, const std::string& version, const std::string& out) {
  const auto rank = static_cast<std::size_t>(world.rank());
  std::vector<std::string> hosts, versions, texts;
  // Another version may exchange something else from here on.
  {
    const auto step = world.split(0, world.rank(), "the hosts");
    hosts = comm::hosts(*step);
    versions = step->all_gather(version);
  }
  Measurements measured;
  if (std::ranges::count(versions, version) != std::ssize(versions)) {
    std::vector<RankReport> reports;
    for (std::size_t i = 0; i < hosts.size(); ++i) reports.push_back({.host = hosts[i], .version = versions[i]});
    return merge(reports, measured);
  }
  {
    const auto step = world.split(0, world.rank(), "the checks");
    around.host = std::ranges::find(hosts, hosts[rank]) - hosts.begin() == world.rank();
    texts = step->all_gather(text_of(own_report(around, hosts[rank], version)));
    const std::vector<std::string> folders = step->all_gather(out);
    comm::agree(*step, [&] {
      if (std::ranges::count(folders, out) != std::ssize(folders)) throw Error("--out: not the same on all ranks");
    });
  }
  if (!out.empty()) {
    const auto step = world.split(0, world.rank(), "the folder");
    view(*step, out, measured);
  }
  if (world.size() > 1) {
    const auto step = world.split(0, world.rank(), "the clocks");
    measured.clocks = compare_clocks(*step);
    measured.all_reduces = time_host_all_reduces(world, hosts);
  }
  std::vector<RankReport> reports;
  for (const std::string& text : texts) reports.push_back(report_of(text));
  const auto has_gpu = [](const RankReport& r) { return r.diagnosis.native; };
  if (world.size() > 1 && std::ranges::all_of(reports, has_gpu) && why_shared(reports).empty()) {
    const std::vector<AllReduce> sums = time_gpu_all_reduces(world, around.local_rank);
    measured.all_reduces.insert(measured.all_reduces.end(), sums.begin(), sums.end());
  }
  return merge(reports, measured);
}

}  // namespace fp8::probe
