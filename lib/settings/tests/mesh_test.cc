// All small meshes and models: which fit, and that messages suggest only meshes that fit, and the nearest.
#include "fp8/settings/mesh.h"

#include <numeric>
#include <regex>

#include "small_model.h"

namespace fp8::settings {
namespace {

using namespace test;

// The sizes of a model that limit meshes. Each rank of --tp has a block of everything else.
struct Model {
  std::int64_t heads, key_value_heads, experts, layers;
};

// Whether a mesh fits, by its definition.
bool fits(const RunConfig& c, std::int64_t ranks, const Model& m) {
  const std::int64_t others = c.dp_replicate * c.tp * c.pp, shards = c.dp_shard > 0 ? c.dp_shard : ranks / others;
  const bool heads = m.heads % c.tp == 0 && (m.key_value_heads % c.tp == 0 || c.tp % m.key_value_heads == 0);
  const bool stages =
      c.stages.empty() ||
      (std::ssize(c.stages) == c.pp && std::accumulate(c.stages.begin(), c.stages.end(), std::int64_t{0}) == m.layers);
  return others * shards == ranks && heads && c.pp <= m.layers && stages &&
         (c.ep == 1 || (c.ep <= m.experts && shards * c.tp % c.ep == 0));
}

class Meshes {
 public:
  explicit Meshes(const Model& m) : model_(m) {
    sizes_ = small_model();
    sizes_.num_attention_heads = m.heads, sizes_.num_key_value_heads = m.key_value_heads;
    sizes_.intermediate_size = 512;
    table_ = model::parameter_table(sizes_);
    limits_ = {"m.h5", m.layers, m.experts, [this](std::int64_t tp) {
                 const auto [at, anew] = refusals_.try_emplace(tp);
                 if (anew) at->second = TensorDivision{precision_, 64, sizes_, table_}.refusal(tp);
                 return at->second;
               }};
  }

  // Checks the answer about some flags. Returns the message, or nothing if they fit.
  std::string check(const RunConfig& c, std::int64_t ranks) {
    std::string message = refusal(c, ranks);
    EXPECT_EQ(message.empty(), fits(c, ranks, model_)) << message;
    if (!message.empty()) check_suggestion(c, ranks, message);
    return message;
  }

 private:
  std::string refusal(const RunConfig& c, std::int64_t ranks) {
    const std::string message = error_of([&] {
      const comm::MeshShape s = fitting_mesh(c, ranks, limits_, "fp8-step");
      EXPECT_EQ(s.ranks(), ranks);
    });
    return message == "no error" ? "" : message;
  }

  static std::int64_t& flag(RunConfig& c, const std::string& name) {
    return name == "dp-replicate" ? c.dp_replicate
           : name == "dp-shard"   ? c.dp_shard
           : name == "tp"         ? c.tp
           : name == "pp"         ? c.pp
                                  : c.ep;
  }

  void check_suggestion(const RunConfig& c, std::int64_t ranks, const std::string& message) {
    static const std::regex kRanks(" (?:([0-9]+) or )?([0-9]+) ranks? fits?"),
        kStart(" start several ranks, as with mpirun -n ([0-9]+) fp8-step"),
        kEither(" --([a-z-]+) ([0-9]+) or ([0-9]+) fits"), kEach("--([a-z-]+) ([0-9]+)");
    const std::string text = message.substr(message.find(';') + 1);
    std::smatch m;
    if (std::regex_match(text, m, kRanks)) {
      for (const std::string& count : {m[1].str(), m[2].str()})
        EXPECT_TRUE(count.empty() || fits(c, std::stoll(count), model_)) << message;
      for (std::int64_t n = m[1].matched ? std::stoll(m[1]) + 1 : 1; n < std::stoll(m[2]); ++n)
        EXPECT_FALSE(m[1].matched && fits(c, n, model_)) << message << ": " << n << " is nearer";
    } else if (std::regex_match(text, m, kStart)) {
      EXPECT_TRUE(ranks == 1 && fits(c, std::stoll(m[1]), model_)) << message;
    } else if (std::regex_match(text, m, kEither)) {
      RunConfig other = c;
      std::int64_t& value = flag(other, m[1]);
      const std::int64_t below = std::stoll(m[2]), above = std::stoll(m[3]);
      for (value = below; value <= above; ++value)
        EXPECT_EQ(fits(other, ranks, model_), value == below || value == above) << message << ": " << value;
    } else {
      RunConfig other = c;
      for (auto at = std::sregex_iterator(text.begin(), text.end(), kEach); at != std::sregex_iterator(); ++at)
        flag(other, (*at)[1]) = std::stoll((*at)[2]);
      if (text.find("without --stages") != std::string::npos) other.stages.clear();
      EXPECT_TRUE(text.ends_with(" fits") && fits(other, ranks, model_)) << message;
    }
  }

  Model model_;
  hf::ModelConfig sizes_;
  PrecisionConfig precision_;
  std::vector<model::Parameter> table_;
  std::map<std::int64_t, std::string> refusals_;
  MeshLimits limits_;
};

TEST(Mesh, WhatDoesNotFitIsAnsweredWithTheNearestThatDoes) {
  std::set<std::string> kinds;
  for (const Model& m : {Model{4, 2, 7, 4}, Model{6, 3, 0, 1}, Model{5, 1, 4, 3}}) {
    Meshes meshes(m);
    RunConfig c;
    c.model = "m.h5";
    for (std::int64_t ranks = 1; ranks <= 8; ++ranks)
      for (c.dp_replicate = 1; c.dp_replicate <= 3; ++c.dp_replicate)
        for (c.dp_shard = 0; c.dp_shard <= 2; ++c.dp_shard)
          for (const std::int64_t tp : {1, 2, 3, 6, 8})
            for (const std::int64_t pp : {1, 2, 5})
              for (const std::int64_t ep : {1, 2, 8})
                for (const std::vector<int>& stages : {std::vector<int>{}, {3, 1}}) {
                  c.tp = tp, c.pp = pp, c.ep = ep, c.stages = stages;
                  std::string message = meshes.check(c, ranks);
                  std::erase_if(message, [](char each) { return each >= '0' && each <= '9'; });
                  kinds.insert(message);
                }
  }
  EXPECT_GT(kinds.size(), 40U);
}

TEST(Mesh, NoFlagIsTooLarge) {
  Meshes meshes({4, 2, 7, 4});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t RunConfig::*flag :
       {static_cast<std::int64_t RunConfig::*>(&RunConfig::dp_replicate),
        static_cast<std::int64_t RunConfig::*>(&RunConfig::dp_shard),
        static_cast<std::int64_t RunConfig::*>(&RunConfig::tp), static_cast<std::int64_t RunConfig::*>(&RunConfig::pp),
        static_cast<std::int64_t RunConfig::*>(&RunConfig::ep)}) {
    RunConfig c;
    c.dp_replicate = 2, c.*flag = kMost;
    const std::string message = error_of([&] {
      fitting_mesh(c, 4, mesh_limits("m.h5", small_model(), [](std::int64_t) { return std::string("it is large"); }),
                   "fp8-step");
    });
    EXPECT_NE(message.find(std::to_string(kMost)), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with(" fits")) << message;
  }
}

}  // namespace
}  // namespace fp8::settings
