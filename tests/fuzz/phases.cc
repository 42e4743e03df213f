// Phases of fp8-resume, fp8-phases(5): the ends of phases increase, and each phase gives a command line.
#include "fp8/launch/phases.h"

#include "fuzz.h"

FP8_FUZZ(phases) {
  using namespace fp8;
  return fuzz::judge([&] {
    const launch::Phases phases = launch::parse_phases(fuzz::text_of(data, size), "input.phases");
    const std::vector<std::string> command = {"fp8-step", "--init", "model.h5"};
    launch::check_phases(phases, command);
    std::int64_t before = 0;
    for (std::size_t i = 0; i < phases.list.size(); ++i) {
      fuzz::require(phases.phase_after(before) == i, "a phase begins where the one before ends");
      fuzz::require(!launch::shell_text(launch::command_line(command, "run", &phases, i)).empty(), "a command line");
      before = phases.list[i].until;
    }
    fuzz::require(!phases.phase_after(phases.end()), "the last phase ends");
  });
}
