/// Judges rollouts: computes each candidate as fp8-eval does, compares it with the log-probabilities of the rollouts,
/// and says what explains them. Collective: every rank calls with the same configuration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/device/device.h"
#include "fp8/judge/explain.h"
#include "fp8/judge/rollouts.h"
#include "fp8/state/journal.h"

namespace fp8::judge {

/// What to judge.
struct JudgeConfig {
  std::string model{};                         ///< checkpoint
  std::vector<std::string> rollouts{};         ///< files
  Form form = Form::automatic;                 ///< their form
  bool trainer = false;                        ///< judge the trainer's log-probabilities
  std::vector<std::string> recipes{};          ///< recipes beside fp32 and bf16; NAME/server: as servers scale
  bool all_recipes = false;                    ///< whether those that do not fit the model are left out
  std::vector<std::string> also{};             ///< other checkpoints
  std::int64_t sequences = 0;                  ///< rollouts to judge; 0: all
  std::int64_t batch_size = 1;                 ///< rollouts of equal length that are computed together
  std::int64_t worst = 0;                      ///< tokens to print of each candidate
  std::optional<Gate> gate{};                  ///< bar
  std::optional<device::DeviceType> device{};  ///< nothing: a GPU if every rank has one, otherwise the CPU
  std::string plot{};                          ///< path of a picture; empty: none
  bool force = false;                          ///< replace the picture if it exists
};

/// Every name that --recipe accepts, but all.
std::vector<std::string> candidate_recipes();

/// {"type":"rollouts"}, for each candidate {"type":"candidate"} and {"type":"token"} of the worst tokens, for each
/// further attempt {"type":"explanation"}, with a gate {"type":"gate"}, and last {"type":"verdict"}, as fp8-judge(1)
/// describes them. Records go to the hook of rank 0. The records are the same for any number of ranks. Returns no if
/// the gate fails, else done. Throws AgreedError. Collective.
Exit judge(const JudgeConfig& config, comm::Communicator& host_comm, const state::Hooks& hooks);

/// The rows of a table of {"type":"candidate"} records, least k3 first; the first row is the heading.
std::vector<std::vector<std::string>> candidate_table(const std::vector<json::Value>& records);

/// The rows of a table of {"type":"token"} records; the first row is the heading. Empty without such a record.
std::vector<std::vector<std::string>> token_table(const std::vector<json::Value>& records);

}  // namespace fp8::judge
