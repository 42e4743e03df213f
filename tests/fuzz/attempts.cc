// attempts.json of fp8-resume: an accepted file can be updated and reads back.
#include "fp8/launch/attempts.h"

#include "fp8/json/json.h"
#include "fuzz.h"

FP8_FUZZ(attempts) {
  using namespace fp8;
  fuzz::folder().write("attempts.json", fuzz::text_of(data, size));
  return fuzz::judge([&] {
    launch::Attempts attempts(fuzz::folder().path(), json::Value("job"));
    attempts.observe(7);
    attempts.begin();
    attempts.failed("status 1", attempts.stderr_tail());
    const launch::Attempts again(fuzz::folder().path(), json::Value("job"));
    fuzz::require(
        again.count() == attempts.count() && again.how() == "status 1" && again.stderr_tail() == attempts.stderr_tail(),
        "attempts read back");
  });
}
