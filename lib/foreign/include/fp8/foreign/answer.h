/// The answer to one key of another trainer's configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::foreign {

/// What a key is here.
enum class Class : std::uint8_t {
  mapped,           ///< the same here: results do not differ
  trainer_default,  ///< not in the file: the trainer's default, written into the configuration ("default")
  no_effect,        ///< has no effect on results: names of folders, logging, kernels with the same numbers
  differs,          ///< mapped, and results differ in the way that `why` names
  no_counterpart,   ///< nothing here does it: status 1 unless --allow names the key
  does_nothing,     ///< has no effect in the other trainer either
};

/// "mapped", "default", "no effect", "differs", "no counterpart", "does nothing".
std::string_view name_of(Class c);

/// One row of the table that fp8-import prints.
struct Answer {
  std::string file;   ///< the file of the key; for a default the file that lacks it
  std::string key;    ///< path of the key, see Document
  json::Value value;  ///< its value in the file, or the default
  std::string here;   ///< flags of our tools as on a command line, several separated by blanks; empty: none
  Class cls;          ///< what it is
  std::string why;    ///< one clause without a full stop; may be empty for mapped keys
};

}  // namespace fp8::foreign
