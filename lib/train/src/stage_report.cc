// Memory, times and bubble of the stages in notes and records.
#include "stage_report.h"

#include <array>
#include <cstdio>

#include "fp8/base/text.h"

namespace fp8::train {

std::string note_of_stages(std::span<const int> layers, std::span<const std::int64_t> memory) {
  if (layers.size() == 1) return "";
  std::string counts, bytes;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    counts += (s == 0 ? "" : ", ") + std::to_string(layers[s]);
    bytes += (s == 0 ? "" : ", ") + human_bytes(static_cast<std::uint64_t>(memory[s]));
  }
  return "stages of " + counts + " layers, with " + bytes + " on each rank";
}

std::string name_of_rank(const comm::Mesh& mesh) {
  const bool stages = mesh.stages().size() > 1;
  if (!stages && mesh.all().progress().hosts().empty()) return "";
  return "rank " + mesh.all().text_of_rank(mesh.all().rank()) +
         (stages ? ", stage " + std::to_string(mesh.stages().rank()) : "");
}

std::string table_of_stages(const comm::Mesh& mesh, const StepTimes& mine) {
  const auto stages = static_cast<std::size_t>(mesh.stages().size());
  if (stages == 1) return "";
  const auto own = static_cast<std::size_t>(mesh.stages().rank());
  const double ranks = mesh.all().size() / static_cast<double>(stages);
  std::vector<double> times(2 * stages, 0);
  times[2 * own] = mine.computing / ranks;
  times[2 * own + 1] = mine.communicating / ranks;
  mesh.all().all_reduce(std::span<double>(times), comm::Reduce::sum);
  std::string text = "  stage    computing    communication and waits, ms/step\n";
  for (std::size_t s = 0; s < stages; ++s) {
    std::array<char, 80> line{};
    std::snprintf(line.data(), line.size(), "  %5zu %12.2f %12.2f\n", s, times[2 * s] * 1e3, times[2 * s + 1] * 1e3);
    text += line.data();
  }
  return text;
}

void add_stages(std::span<const int> layers, std::span<const std::int64_t> memory, json::Value& run_record) {
  if (layers.size() == 1) return;
  json::Array stages;
  for (std::size_t s = 0; s < layers.size(); ++s)
    stages.push_back(json::object({{"layers", layers[s]}, {"memory", memory[s]}}));
  run_record.as_object().set("stages", std::move(stages));
}

void add_bubble(const StepResult& r, double expected, json::Value& step_record) {
  if (expected == 0 || r.masked) return;
  json::Object& record = step_record.as_object();
  record.set("bubble", r.bubble ? json::Value(*r.bubble) : json::Value());
  record.set("bubble_expected", expected);
}

}  // namespace fp8::train
