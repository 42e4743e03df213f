/// Sweeps: settings with several values, sides with flags of their own, and the runs that are their combinations. The
/// format is fp8-sweep(5). Flags and values are not checked here but by the command.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8/base/file.h"

namespace fp8::launch {

/// A line `name = value, value`: the values of one flag.
struct SweepSetting {
  std::string name;                 ///< name of the flag, without dashes
  std::vector<std::string> values;  ///< at least one, none empty, with different names in folders
  std::uint64_t line = 0;           ///< line number in the file, from 1
};

/// A line `side NAME: FLAGS`: one of the things that are compared.
struct SweepSide {
  std::string name;                ///< letters, digits and . _ + -
  std::vector<std::string> flags;  ///< words for the command, at least one
  std::uint64_t line = 0;          ///< line number in the file, from 1
};

/// A parsed file. It has a setting or a side.
struct Sweep {
  std::string name;                    ///< file name in messages
  std::vector<SweepSetting> settings;  ///< in the order of the file, with different names
  std::vector<SweepSide> sides;        ///< in the order of the file, with different names; may be empty
};

/// One run of a sweep.
struct SweepRun {
  std::string name;                                           ///< name of its folder: "fp8_lr=1e-3_seed=1"
  std::string side;                                           ///< empty without sides
  std::vector<std::pair<std::string, std::string>> settings;  ///< names and values
  std::vector<std::string> flags;                             ///< words for the command: the side's, then the values
  std::int64_t position = 0;                                  ///< index among runs_of()
};

/// Largest number of runs of a sweep.
constexpr std::size_t kMaxSweepRuns = 10'000;

/// Parses the text of a sweep. Throws Error `name:LINE: reason`.
Sweep parse_sweep(std::string_view text, const std::string& name);

/// Reads a sweep file of at most 1 MiB. Errors name `path`.
Sweep read_sweep(const std::string& path, const File::Waiting& waiting = {});

/// Every combination of values, each with every side: the sides change fastest, then the values of the last setting.
/// A name consists of the side and of `name=value` for each setting, with `_` between them and instead of characters
/// other than letters, digits and . _ + -. It does not depend on other values of the file. Names
/// are different. Throws Error `name: reason` if there are more than kMaxSweepRuns runs or a name is longer than 200
/// bytes.
std::vector<SweepRun> runs_of(const Sweep& sweep);

/// `text` as a part of a folder's name, see runs_of().
std::string folder_text(std::string_view text);

}  // namespace fp8::launch
