// Damaged copies of checkpoints, thousands in one process: each is refused by name, none is loaded, and a run resumes
// from the checkpoint before. `make check-fault` makes 10,000 copies, `make check` some hundreds. The digests cover all
// bytes, unused ones too (fp8-checkpoint(5)), so a copy is either equal to the original or refused. The messages are
// tested in the crate ckpt.
#include <functional>
#include <iostream>
#include <map>
#include <random>

#include "fixture.h"
#include "fp8/h5/reader.h"

namespace fp8::ckpt {
namespace {

constexpr int kWorld = 3;

// Number of copies to test: `all` with FAULTS=all, otherwise a twentieth.
std::size_t share_of(std::size_t all) {
  const char* faults = std::getenv("FAULTS");
  return faults != nullptr && std::string_view(faults) == "all" ? all : all / 20;
}

// Bytes [begin, end) of a shard or a single file.
struct Region {
  std::string name;
  std::size_t begin, end;
};

// Divides all bytes of an HDF5 checkpoint by their use.
std::vector<Region> regions_of(const std::string& path) {
  const h5::Reader reader(path, h5::kCheckpointMagic);
  const std::string bytes = read_file(path);
  const std::size_t line = bytes.find('\n') + 1, after = 512, superblock = 48;
  std::vector<Region> regions = {
      {"user block", 0, line}, {"rest of the user block", line, after}, {"superblock", after, after + superblock}};
  std::vector<const h5::Entry*> entries;
  for (const h5::Entry& e : reader.list())
    if (e.bytes > 0) entries.push_back(&e);
  std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  std::size_t at = after + superblock;
  for (const h5::Entry* e : entries) {
    const auto offset = static_cast<std::size_t>(e->offset), count = static_cast<std::size_t>(e->bytes);
    if (offset > at) regions.push_back({"headers and slack", at, offset});
    regions.push_back({"/" + e->name, offset, offset + count});
    at = offset + count;
  }
  if (at < bytes.size()) regions.push_back({"headers and slack", at, bytes.size()});
  return regions;
}

class FaultDamage : public FolderTest {
 protected:
  // A run with steps 3 and 4, and sources of wrong files: another run, another number of ranks, a single file.
  FaultDamage() {
    std::filesystem::create_directories(at("run"));
    write_folder(good_, kWorld, 3, 2);
    write_folder(step_, kWorld, 4);
    write_folder(at("other"), kWorld, 4, 1);
    write_folder(at("wide"), kWorld + 1, 4);
    write_model(single_);
  }
  static void TearDownTestSuite() {
    std::size_t all = 0;
    for (const auto& [kind, count] : counts()) {
      std::cout << "# " << count << " " << kind << "\n";
      if (kind.find("unchanged") == std::string::npos) all += count;
    }
    std::cout << "# damaged copies: " << all << ", each refused" << std::endl;
  }
  static std::map<std::string, std::size_t>& counts() {
    static std::map<std::string, std::size_t> counts;
    return counts;
  }

  // Files of a checkpoint: 0 is the manifest, i > 0 the shard of rank i - 1.
  static std::string file_name(std::size_t i) {
    return i == 0 ? "manifest.json" : "rank-0000" + std::to_string(i - 1) + "-of-0000" + std::to_string(kWorld) + ".h5";
  }
  std::string file(std::size_t i) const { return step_ + "/" + file_name(i); }

  // The step that find_valid() finds; -1: none.
  std::int64_t newest(const Finder::Report& report = {}) const {
    const auto found = find_valid(at("run"), Which::last, report);
    return found ? position_of(*found).step : -1;
  }
  // Expects that find_valid() refuses step 4 with a message that names `path`, and returns step 3.
  void expect_refused(const std::string& kind, const std::string& path, const std::string& what) {
    ++counts()[kind];
    std::vector<std::string> told;
    EXPECT_EQ(newest([&](const std::string& of, const std::string& reason) { told = {of, reason}; }), 3) << what;
    ASSERT_EQ(told.size(), 2U) << what;
    EXPECT_EQ(told[0], step_) << what;
    EXPECT_TRUE(told[1].starts_with(path) && told[1].find(": ") != std::string::npos) << what << ": " << told[1];
  }
  void expect_single_refused(const std::string& kind, const std::string& what) {
    ++counts()[kind];
    const std::string error = verify_error(single_);
    EXPECT_TRUE(error.starts_with(single_ + ": ")) << what << ": " << error;
  }

  // Writes `bad` to `path`, expects that it is refused, and restores `good`.
  void with(const std::string& path, const std::string& good, const std::string& bad, const std::string& kind,
            const std::string& what, bool names_it = true) {
    if (bad == good) {
      ++counts()["copies unchanged: the bytes already had that value"];
      return;
    }
    write_file(path, bad);
    if (path == single_) {
      expect_single_refused(kind, what);
    } else {
      expect_refused(kind, names_it ? path : step_, what);
    }
    write_file(path, good);
  }
  // All files to damage: the files of step 4 and the single file.
  std::vector<std::string> files() const {
    std::vector<std::string> all = {single_};
    for (std::size_t i = 0; i <= kWorld; ++i) all.push_back(file(i));
    return all;
  }

  // Regions of an HDF5 file; lines of a manifest.
  static std::vector<Region> parts_of(const std::string& path) {
    if (path.ends_with(".h5")) return regions_of(path);
    std::vector<Region> lines;
    const std::string text = read_file(path);
    for (std::size_t begin = 0; begin < text.size(); begin = lines.back().end)
      lines.push_back({"manifest", begin, std::min(text.find('\n', begin), text.size() - 1) + 1});
    return lines;
  }
  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  const std::string good_ = at("run/step-00000003"), step_ = at("run/step-00000004"), single_ = at("m.h5");
  std::mt19937_64 random_{20261121};  // NOLINT: the same copies each time
};

TEST_F(FaultDamage, RefusesAFlippedBitInEveryRegion) {
  struct Target {
    std::string path, good;
    std::vector<Region> regions;
  };
  std::vector<Target> targets;
  for (const std::string& path : files()) targets.push_back({path, read_file(path), parts_of(path)});
  const std::size_t all = share_of(5200);
  for (std::size_t i = 0, round = 0; i < all; ++round) {
    for (Target& t : targets) {
      const Region& r = t.regions[round % t.regions.size()];
      const std::size_t byte = r.begin + below(r.end - r.begin), bit = below(8);
      std::string bad = t.good;
      bad[byte] = static_cast<char>(bad[byte] ^ (1 << bit));
      const std::string part = r.name.starts_with('/') ? "datasets" : r.name;
      with(t.path, t.good, bad, "copies with a bit flipped in " + part,
           t.path + " " + r.name + " byte " + std::to_string(byte) + " bit " + std::to_string(bit));
      if (++i == all) break;
    }
  }
}

TEST_F(FaultDamage, RefusesRunsOfZerosAndOnesAndForeignBlocks) {
  for (const std::string& path : files()) {
    const std::string good = read_file(path);
    const std::string other = path == single_ ? good : read_file(at("other") + path.substr(path.rfind('/')));
    const std::vector<Region> regions = parts_of(path);
    for (std::size_t i = 0; i < share_of(500); ++i) {
      const Region& r = regions[i % regions.size()];
      const std::size_t begin = r.begin + below(r.end - r.begin), longest = std::size_t{1} << below(13);
      const std::size_t count = std::min(longest, good.size() - begin);
      const std::string where = path + " " + r.name + " bytes " + std::to_string(begin) + "+" + std::to_string(count);
      std::string bad = good;
      switch (i % 4) {
        case 0:
          with(path, good, bad.replace(begin, count, count, '\0'), "copies with a run of zeros", "zeros " + where);
          break;
        case 1:
          with(path, good, bad.replace(begin, count, count, '\xff'), "copies with a run of ones", "ones " + where);
          break;
        case 2:
          with(path, good, bad.replace(begin, good.size() - begin, good.size() - begin, '\0'),
               "copies with zeros to the end", "a tail of zeros " + where);
          break;
        default:
          bad.replace(begin, count, other, std::min(below(2) * begin, other.size() - 1), count);
          bad.resize(good.size(), '\0');
          // If the manifest becomes that of the other run, it is valid, and the message names the folder instead.
          with(path, good, bad, "copies with a block of another file", "a block of another file " + where,
               path != file(0));
      }
    }
  }
}

TEST_F(FaultDamage, RefusesOtherLengths) {
  for (const std::string& path : files()) {
    const std::string good = read_file(path);
    std::set<std::size_t> lengths = {0, 1, good.size() / 2, good.size() - 1};
    for (const Region& r : parts_of(path))
      for (const std::size_t edge : {r.begin, r.end})
        for (const std::size_t length : {edge - 1, edge, edge + 1, (r.begin + r.end) / 2}) lengths.insert(length);
    for (std::size_t block = 4096; block < good.size(); block += 4096) lengths.insert(block);
    while (lengths.size() < 200) lengths.insert(below(good.size()));
    std::erase_if(lengths, [&](std::size_t n) { return n >= good.size(); });
    const std::size_t stride = std::max<std::size_t>(1, lengths.size() / share_of(200));
    std::size_t number = 0;
    for (const std::size_t length : lengths)
      if (number++ % stride == 0)
        with(path, good, good.substr(0, length), "truncated copies", path + " cut to " + std::to_string(length));
    for (const std::size_t more : {std::size_t{1}, std::size_t{512}, std::size_t{4096}})
      with(path, good, good + std::string(more, '\0'), "copies with bytes appended", path + " longer");
  }
}

// Each of the four files of step 4 is one of seven: the original, missing, empty, of step 3, of another run, of another
// number of ranks, or of the next rank. Two of the 7^4 mixtures are complete checkpoints.
TEST_F(FaultDamage, RefusesSwappedMissingAndMixedFiles) {
  const std::string kept = at("kept");
  std::filesystem::rename(step_, kept);
  write_file(at("empty"), "");
  const auto source = [&](std::size_t i, std::size_t choice) -> std::string {
    const std::size_t next = i == 0 ? 0 : 1 + i % kWorld;
    switch (choice) {
      case 0:
        return kept + "/" + file_name(i);
      case 1:
        return at("other/") + file_name(i);
      case 2:
        return good_ + "/" + file_name(i);
      case 3:
        return kept + "/" + file_name(next);
      case 4:
        return at("wide/") + (i == 0 ? file_name(i) : "rank-0000" + std::to_string(i - 1) + "-of-00004.h5");
      case 5:
        return at("empty");
      default:
        return {};
    }
  };
  constexpr std::size_t kChoices = 7, kAll = kChoices * kChoices * kChoices * kChoices;
  const std::size_t stride = kAll / share_of(kAll);
  for (std::size_t n = 0; n < kAll; n += stride) {
    std::filesystem::create_directory(step_);
    std::array<std::size_t, kWorld + 1> choices{};
    for (std::size_t i = 0, left = n; i <= kWorld; ++i, left /= kChoices) {
      choices.at(i) = left % kChoices;
      const std::string from = source(i, choices.at(i));
      if (!from.empty()) std::filesystem::create_hard_link(from, file(i));
    }
    const bool own_manifest = choices[0] == 0 || choices[0] == 3;
    const auto all = [&](std::size_t c) { return choices[1] == c && choices[2] == c && choices[3] == c; };
    if ((own_manifest && all(0)) || (choices[0] == 1 && all(1))) {
      ++counts()["mixtures unchanged: all files of one checkpoint"];
      EXPECT_EQ(verify_error(step_), "no error") << n;
      EXPECT_EQ(newest(), 4) << n;
    } else if (choices[0] == 2 && all(2)) {  // complete, but of step 3
      ++counts()["copies with files swapped, missing or mixed"];
      EXPECT_EQ(newest(), 3);
    } else {
      expect_refused("copies with files swapped, missing or mixed", step_, "mixture " + std::to_string(n));
    }
    std::filesystem::remove_all(step_);
  }
}

}  // namespace
}  // namespace fp8::ckpt
