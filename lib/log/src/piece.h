/// Parses one piece of a log by itself into columns. Pure functions, so that pieces can be parsed in parallel;
/// Collector assembles them in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/log/run.h"

namespace fp8::log {

/// The precision in a step record.
struct StepPrecision {
  bool has_precision = false;         ///< whether the record has "precision"; the recipe is used only then
  bool has_emulated = false;          ///< whether the record has "emulated"
  std::string precision{};            ///< empty when it is not a string
  std::string recipe{};               ///< empty when it is not a string
  std::optional<bool> emulated = {};  ///< nullopt when it is not a boolean
};

/// A numeric field of a block of steps.
struct Field {
  std::string name{};            ///< the member's key
  bool wanted = false;           ///< whether its values are kept
  std::vector<double> values{};  ///< one per step, NaN where missing; empty unless `wanted`
};

/// Consecutive step records with increasing numbers, the same settings, and no numeric fields that the first lacks.
struct StepBlock {
  std::uint64_t line = 0;              ///< line of the first record, from 1 in the piece
  StepPrecision setting{};             ///< settings of all records
  std::vector<Field> fields{};         ///< numeric fields of the first record, in its order
  std::vector<std::int64_t> steps{};   ///< step numbers
  std::vector<std::int64_t> tokens{};  ///< tokens seen; -1 where missing
};

/// A record other than a step.
struct Event {
  std::uint64_t line = 0;  ///< from 1 in the piece
  json::Object record{};   ///< all members
};

/// A line that is not a record.
struct Fault {
  std::uint64_t line = 0;  ///< from 1 in the piece
  std::string reason{};    ///< text after "line N" in the message
  bool damaged = false;    ///< not JSON: the writer may have been killed
  bool torn = false;       ///< damaged and without a newline: the writer was killed or is still writing
};

/// The items of a piece.
struct Piece {
  std::vector<std::variant<StepBlock, Event, Fault>> items{};  ///< in order
  std::uint64_t lines = 0;                                     ///< number of lines
};

/// Name of the log in the folder of a run.
inline constexpr std::string_view kLogFile = "log.jsonl";

/// Longest accepted line, in bytes.
inline constexpr std::size_t kLongestLine = std::size_t{64} << 20U;

/// Parses whole lines; the last one may lack its newline. Stops at a line that is an error in every context.
Piece read_piece(std::string_view text, const Wanted& wanted);

/// The count under `key`. Throws Error when it is missing or not an integer >= 0.
std::int64_t needed_count(const json::Object& record, std::string_view key);

/// The string under `key`; empty when it is missing or not a string.
std::string text_or_empty(const json::Object& record, std::string_view key);

/// The boolean under `key`; nullopt when it is missing or not a boolean.
std::optional<bool> boolean(const json::Object& record, std::string_view key);

}  // namespace fp8::log
