/// Checks of command lines of fp8-step before any is started.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

namespace fp8::train {

/// Checks command lines in this process, without MPI and without writing anything.
class CommandCheck {
 public:
  /// Throws the Error that fp8-step would throw for `words`, what follows its name: as printed_config(), on as many
  /// ranks as the mesh needs at least. If --out holds checkpoints, on which the number of ranks has had an effect, only
  /// that for settings alone. `needs_files`: whether MODEL and data that do not exist are an error. Lines that differ
  /// from one before in --seed and --out alone are not checked again. Returns the file of --gradients, whether a flag
  /// or --config names it; empty without.
  std::string check(std::span<const std::string> words, bool needs_files);

  /// Throws the Error that fp8-step would throw for `words` before it opens a file other than that of --config.
  static void check_flags(std::span<const std::string> words);

 private:
  std::string named(const std::string& model, bool needs_file);

  std::map<std::string, std::string> models_{};  // what MODEL names, which is verified once
  std::set<std::string> checked_{};              // configurations without an error
};

}  // namespace fp8::train
