// UTC by the calendar of <chrono>, independent of the locale and the time zone.
#include "fp8/base/utc.h"

#include <array>
#include <cstdio>

namespace fp8 {
namespace {

constexpr std::string_view kForm = "0000-00-00T00:00:00.000Z";  // 0: a digit

}  // namespace

std::string utc_text(std::chrono::system_clock::time_point time) {
  using namespace std::chrono;
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(floor<milliseconds>(time - day));
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
                      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                      static_cast<int>(clock.seconds().count()), static_cast<int>(clock.subseconds().count()));
  return text.data();
}

std::optional<double> parse_utc(std::string_view text) {
  using namespace std::chrono;
  if (text.size() != kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != kForm[i]) return std::nullopt;
  }
  const auto number = [&](std::size_t at, std::size_t digits) {
    int n = 0;
    for (std::size_t i = at; i < at + digits; ++i) n = 10 * n + (text[i] - '0');
    return n;
  };
  const year_month_day date(year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
                            day(static_cast<unsigned>(number(8, 2))));
  const int hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  const auto whole = sys_days(date) + hours(hour) + minutes(minute) + seconds(second) + milliseconds(number(20, 3));
  return static_cast<double>(whole.time_since_epoch().count()) / 1000;
}

}  // namespace fp8
