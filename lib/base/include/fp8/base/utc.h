/// Time of day in UTC, as text and back.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fp8 {

/// `time` as "2026-11-22T19:00:00.123Z", rounded down to milliseconds. Years 0 to 9999.
std::string utc_text(std::chrono::system_clock::time_point time);

/// Seconds since 1970-01-01T00:00:00Z of a text in exactly the form of utc_text(); nothing for any other text, also for
/// days and times that do not exist. Leap seconds count as such.
std::optional<double> parse_utc(std::string_view text);

}  // namespace fp8
