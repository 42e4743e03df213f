/// A piece of a log, read by itself: what its lines say, in columns where they are alike. Pure, so that pieces can be
/// read at the same time; what they mean one after another is the collector's to say.
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

/// What a step record says about how it ran.
struct Setting {
  bool has_precision = false;         ///< whether the record says it; the recipe counts only then
  bool has_emulated = false;          ///< whether the record says it
  std::string precision{};            ///< empty when it is no text
  std::string recipe{};               ///< empty when it is no text
  std::optional<bool> emulated = {};  ///< nothing when it is no boolean
};

/// A numeric field of a block of steps.
struct Field {
  std::string name{};            ///< the member's key
  bool wanted = false;           ///< whether its values are kept
  std::vector<double> values{};  ///< one a step, NaN for what is missing; empty when it is not wanted
};

/// Steps one after another, each above the one before, that ran alike and have no fields that the first does not have.
struct Block {
  std::uint64_t line = 0;              ///< of the first one, counted from 1 in the piece
  Setting setting{};                   ///< of all of them
  std::vector<Field> fields{};         ///< those with a value in the first record, in its order
  std::vector<std::int64_t> steps{};   ///< their numbers
  std::vector<std::int64_t> tokens{};  ///< tokens seen; -1 for what is missing
};

/// Any other record.
struct Event {
  std::uint64_t line = 0;  ///< counted from 1 in the piece
  json::Object record{};   ///< what it says
};

/// A line that is no record.
struct Fault {
  std::uint64_t line = 0;  ///< counted from 1 in the piece
  std::string reason{};    ///< what follows "line N" in the message
  bool damaged = false;    ///< no JSON at all: perhaps its writer was killed
  bool torn = false;       ///< damaged, and without a newline: the writer did not finish it, or not yet
};

/// What a piece holds.
struct Piece {
  std::vector<std::variant<Block, Event, Fault>> items{};  ///< in their order
  std::uint64_t lines = 0;                                 ///< how many lines it has
};

/// Name of the log in the folder of a run.
inline constexpr std::string_view kLogFile = "log.jsonl";

/// Longest line that is read, in bytes.
inline constexpr std::size_t kLongestLine = std::size_t{64} << 20U;

/// Reads whole lines; the last one may lack its newline. Stops at a fault that cannot be forgiven.
Piece read_piece(std::string_view text, const Wanted& wanted);

/// The count under `key`. Throws Error when it is missing or no integer from 0 up.
std::int64_t needed_count(const json::Object& record, std::string_view key);

/// The text under `key`; empty when it is missing or no text.
std::string text_or_empty(const json::Object& record, std::string_view key);

/// The boolean under `key`, if it is one.
std::optional<bool> boolean(const json::Object& record, std::string_view key);

}  // namespace fp8::log
