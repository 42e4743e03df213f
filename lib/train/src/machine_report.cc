// Machines and the slow rank in notes and records.
#include "machine_report.h"

#include <algorithm>

namespace fp8::train {
namespace {

// "0-3,8", the numbers of the ranks on a machine.
std::string ranks_on(const std::string& host, std::span<const std::string> hosts) {
  std::string text;
  for (std::size_t first = 0; first < hosts.size(); ++first) {
    if (hosts[first] != host) continue;
    std::size_t last = first;
    while (last + 1 < hosts.size() && hosts[last + 1] == host) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
    first = last;
  }
  return text;
}

}  // namespace

std::vector<std::int64_t> busy_term(const comm::Communicator& all, double seconds) {
  std::vector<std::int64_t> busy(static_cast<std::size_t>(all.size()));
  busy[static_cast<std::size_t>(all.rank())] = static_cast<std::int64_t>(seconds * 1e9);
  return busy;
}

std::optional<SlowRank> slow_rank(const comm::Mesh& mesh, std::span<const std::int64_t> busy) {
  std::optional<SlowRank> slow = find_slow_rank(busy, mesh.shape().pp);
  const std::vector<std::string> hosts = mesh.all().progress().hosts();
  if (slow && !hosts.empty()) slow->host = hosts.at(static_cast<std::size_t>(slow->rank));
  return slow;
}

void add_hosts(std::span<const std::string> hosts, json::Value& run_record) {
  if (hosts.empty()) return;
  json::Array machines;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    if (std::ranges::find(hosts, hosts[rank]) - hosts.begin() == static_cast<std::ptrdiff_t>(rank))
      machines.push_back(json::object({{"host", hosts[rank]}, {"ranks", ranks_on(hosts[rank], hosts)}}));
  run_record.as_object().set("hosts", std::move(machines));
}

void add_slow_rank(const std::optional<SlowRank>& slow, json::Value& step_record) {
  if (!slow) return;
  json::Object& record = step_record.as_object();
  record.set("slowest_rank", slow->rank);
  if (!slow->host.empty()) record.set("slowest_host", slow->host);
  record.set("slowest_lag", slow->lag);
}

std::string line_of_slow_rank(const comm::Mesh& mesh, double busy) {
  std::vector<std::int64_t> of_ranks = busy_term(mesh.all(), busy);
  mesh.all().all_reduce(std::span<std::int64_t>(of_ranks), comm::Reduce::max);
  const std::optional<SlowRank> slow = slow_rank(mesh, of_ranks);
  return slow ? "  " + text_of(*slow) + "\n" : "";
}

}  // namespace fp8::train
