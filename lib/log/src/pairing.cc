// Pairs the runs of two sides, and names the sides.
#include <algorithm>
#include <map>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/log/compare.h"
#include "seed.h"

namespace fp8::log {
namespace {

// The key by which runs are paired: the seed, and MODEL if seeds repeat; or Run::key. Keys are ordered by number, then
// by text.
struct PairKey {
  std::int64_t number = 0;  // the seed, if it is an integer
  std::string seed{}, model{};

  auto operator<=>(const PairKey&) const = default;
};

// The index of the run for each key. Throws Error when two runs have the same key.
std::map<PairKey, std::size_t> by_key(std::span<const Run> runs, const std::vector<PairKey>& keys) {
  std::map<PairKey, std::size_t> found;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto [at, fresh] = found.emplace(keys[i], i);
    if (!fresh) {
      throw Error(runs[at->second].path + " and " + runs[i].path +
                  " have the same seed and MODEL, so their partners are unknown");
    }
  }
  return found;
}

std::vector<PairKey> keys_of(std::span<const Run> runs, bool with_model) {
  std::vector<PairKey> keys;
  for (const Run& run : runs) {
    const std::string seed = seed_of(run);
    if (!run.key.empty()) {
      keys.push_back({parse_int64(seed).value_or(0), run.key, ""});
      continue;
    }
    if (seed.empty()) throw Error(run.path + ": its log has no seed, by which runs are paired");
    keys.push_back({parse_int64(seed).value_or(0), seed, with_model ? model_identity(run) : ""});
  }
  return keys;
}

bool repeats(std::vector<PairKey> keys) {
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
}

// Throws Error when a side has the same run twice: it would count as two pairs.
void check_distinct(std::span<const Run> side) {
  for (std::size_t i = 1; i < side.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (side[i].path == side[j].path) throw Error(side[i].path + ": given twice on one side");
}

// Pairs runs without settings.
Pairing in_order(std::span<const Run> a, std::span<const Run> b) {
  if (a.size() != b.size()) {
    throw Error(std::to_string(a.size()) + " and " + std::to_string(b.size()) +
                " runs without settings cannot be paired");
  }
  check_distinct(a);
  check_distinct(b);
  Pairing pairing;
  for (std::size_t i = 0; i < a.size(); ++i) pairing.pairs.emplace_back(i, i);
  return pairing;
}

// Without what follows the part that runs of a side share: digits of a number that is cut, NAME=, separators.
std::string trimmed(std::string shared, bool number_is_cut) {
  constexpr std::string_view kSeparators = "_-./,+= ", kDigits = "0123456789";
  const auto keep = [&](std::size_t last) { shared.erase(last == std::string::npos ? 0 : last + 1); };
  if (number_is_cut) keep(shared.find_last_not_of(kDigits));
  if (shared.ends_with('=')) {
    shared.pop_back();
    keep(shared.find_last_of("_,/"));
  }
  keep(shared.find_last_not_of(kSeparators));
  return shared;
}

// The common beginning of the names of a side.
std::string beginning(const std::vector<std::string>& names) {
  if (names.size() == 1) return names.front();
  std::string shared = names.front();
  for (const std::string& name : names) {
    const auto end = std::mismatch(shared.begin(), shared.end(), name.begin(), name.end()).first;
    shared.erase(end, shared.end());
  }
  const bool digits = std::ranges::all_of(names, [&](const std::string& name) {
    return name.size() == shared.size() || (name[shared.size()] >= '0' && name[shared.size()] <= '9');
  });
  return trimmed(shared, digits);
}

}  // namespace

Pairing pairs_of(std::span<const Run> a, std::span<const Run> b) {
  Pairing pairing;
  const auto unknown = [](const Run& run) { return run.settings.empty() && run.key.empty(); };
  if (a.size() == 1 && b.size() == 1) {
    pairing.pairs.emplace_back(0, 0);
    return pairing;
  }
  if (std::ranges::all_of(a, unknown) && std::ranges::all_of(b, unknown)) return in_order(a, b);
  const bool with_model = repeats(keys_of(a, false)) || repeats(keys_of(b, false));
  const std::map<PairKey, std::size_t> runs = by_key(a, keys_of(a, with_model)),
                                       partners = by_key(b, keys_of(b, with_model));
  for (const auto& [key, i] : runs) {
    if (const auto at = partners.find(key); at != partners.end()) {
      pairing.pairs.emplace_back(i, at->second);
    } else {
      pairing.alone_a.push_back(i);
    }
  }
  for (const auto& [key, i] : partners)
    if (!runs.contains(key)) pairing.alone_b.push_back(i);
  if (pairing.pairs.empty()) {
    if (!a.front().key.empty())
      throw Error(a.front().path + ": no run of the other side has its other settings (" + a.front().key + ")");
    throw Error(a.front().path + ": no run of the other side has its seed" + (with_model ? " and MODEL" : "") + " (" +
                seed_of(a.front()) + ")" + (a.size() > 1 ? ", nor that of another run of its side" : ""));
  }
  return pairing;
}

std::size_t partner_of(const Run& run, std::span<const Run> others) {
  if (others.size() == 1) return 0;
  const std::string seed = seed_of(run), model = model_identity(run);
  if (seed.empty()) throw Error(run.path + ": its log has no seed, by which runs are paired");
  std::vector<std::size_t> found, same_model;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (seed_of(others[i]) != seed) continue;
    found.push_back(i);
    if (model_identity(others[i]) == model) same_model.push_back(i);
  }
  if (found.empty()) throw Error(run.path + ": no baseline has its seed (" + seed + ")");
  if (found.size() > 1) found = same_model;
  if (found.size() != 1)
    throw Error(run.path + ": not one baseline but " + std::to_string(found.size()) + " have its seed (" + seed +
                ") and MODEL");
  return found.front();
}

std::vector<std::string> side_names(std::span<const std::vector<std::string>> names_of_runs) {
  std::vector<std::string> names;
  for (const std::vector<std::string>& runs : names_of_runs) names.push_back(beginning(runs));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool unclear = names[i].empty() || std::ranges::count(names, names[i]) > 1;
    if (!unclear) continue;
    // All sides are letters, so that none looks like a name.
    for (std::size_t k = 0; k < names.size(); ++k)
      names[k] = k < 26 ? std::string(1, static_cast<char>('A' + k)) : "side " + std::to_string(k + 1);
    break;
  }
  return names;
}

}  // namespace fp8::log
