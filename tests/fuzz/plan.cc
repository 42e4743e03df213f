// Plans of fp8-resume, fp8-plan(5): the ends of phases increase, and each phase gives a command line.
#include "fp8/launch/plan.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp8;
  return fuzz::judge([&] {
    const launch::PhasePlan plan = launch::parse_plan(fuzz::text_of(data, size), "input.plan");
    const std::vector<std::string> command = {"fp8-step", "--init", "model.h5"};
    launch::check_plan(plan, command);
    std::int64_t before = 0;
    for (std::size_t i = 0; i < plan.phases.size(); ++i) {
      fuzz::require(plan.phase_after(before) == i, "a phase begins where the one before ends");
      fuzz::require(!launch::shell_text(launch::command_line(command, "run", &plan, i)).empty(), "a command line");
      before = plan.phases[i].until;
    }
    fuzz::require(!plan.phase_after(plan.end()), "a plan ends");
  });
}
