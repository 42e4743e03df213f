// fp8-import: a configuration of another trainer as one of fp8-step. See fp8-import(1).
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "flags.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/h5/types.h"
#include "fp8/json/json.h"
#include "fp8/settings/flags.h"
#include "report.h"

namespace {

using namespace fp8;
namespace fs = std::filesystem;

constexpr const char* kName = "fp8-import";
constexpr int kNoCounterpart = 1;

// What keeps run.sh from being written; empty: nothing.
std::string reason_without_script(const foreign::Import& import, const std::vector<foreign::Answer>& refused) {
  if (!import.missing.empty()) return import.missing.front();
  if (!import.unready.empty()) return import.unready.front();
  return refused.empty() ? "" : "a key without counterpart is not in " + cli::flag_name("allow");
}

// What fp8-step itself refuses is missing too.
void check_flags(foreign::Import& import) {
  const cli::Command command = settings::step_command();
  try {
    cli::Arguments arguments = cli::parse(command, std::vector<std::string>{"model.h5"});
    cli::parse_config(command, import.flags, arguments, "run.json");
    (void)settings::step_config(arguments);
  } catch (const Error& e) {
    import.missing.emplace_back(e.what());
  }
}

// A line for each reason why keys have no counterpart, with the keys of a file that have it.
std::vector<std::string> lines_of(const std::vector<foreign::Answer>& refused) {
  struct Reason {
    std::string file, why, keys;
  };
  std::vector<Reason> reasons;
  for (const foreign::Answer& a : refused) {
    const auto same = std::ranges::find_if(
        reasons, [&](const Reason& r) { return !a.why.empty() && r.file == a.file && r.why == a.why; });
    if (same == reasons.end())
      reasons.push_back({a.file, a.why, a.key});
    else
      same->keys += ", " + a.key;
  }
  std::vector<std::string> lines;
  for (const Reason& r : reasons)
    lines.push_back(r.file + ": " + r.keys + ": no counterpart" + (r.why.empty() ? "" : ": " + r.why));
  return lines;
}

// The files that the import has read, which no output replaces.
std::vector<std::string> inputs_of(const foreign::Import& import) {
  std::vector<std::string> inputs = import.options.files;
  for (const foreign::Document& d : import.documents) inputs.push_back(d.path);
  for (const auto* sources : {&import.data.train, &import.data.eval})
    for (const foreign::DataSource& s : *sources) inputs.insert(inputs.end(), s.files.begin(), s.files.end());
  if (import.options.dataset_dir) inputs.push_back(*import.options.dataset_dir + "/dataset_info.json");
  if (import.options.model) inputs.push_back(*import.options.model + "/config.json");
  return inputs;
}

// Writes the files; an older run.sh that no longer fits is removed.
void write_files(const std::string& folder, bool force, const foreign::Import& import, bool script) {
  std::vector<std::pair<std::string, std::string>> files = {{"run.json", foreign::configuration_text(import)}};
  if (import.config) files.emplace_back("config.json", json::dump(*import.config, 2) + "\n");
  if (script) files.emplace_back("run.sh", foreign::script_text(import));
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) throw_errno(folder, "cannot create the folder", error.value());
  const std::vector<std::string> inputs = inputs_of(import);
  for (const auto& [name, text] : files) check_output(folder + "/" + name, force, inputs);
  const std::string older = folder + "/run.sh";
  if (!script && fs::exists(older, error)) {
    check_output(older, force, inputs);
    if (!fs::remove(older, error)) throw_errno(older, "cannot remove the older script", error.value());
  }
  for (const auto& [name, text] : files) {
    AtomicFile file(folder + "/" + name, force);
    File out = File::create_or_empty(file.path());
    out.write_all(text);
    out.close();
    file.commit();
  }
}

// Notes on what run.sh makes only where it is not there, so that it stays as an earlier run.sh made it.
void note_of_older(const std::string& folder) {
  std::string there;
  std::error_code error;
  for (const char* name : {"model.h5", "data.h5", "eval.h5", "run", "adapter", "model"})
    if (fs::exists(folder + "/" + name, error)) there += (there.empty() ? "" : ", ") + std::string(name);
  if (!there.empty())
    cli::print_error(kName, folder + ": run.sh keeps what is there: " + there + "; remove what the import changes");
}

int run_import(const cli::Arguments& arguments) {
  foreign::Import import = foreign::read(import_tool::options_of(arguments));
  check_flags(import);
  const std::vector<foreign::Answer> refused = foreign::refused(import);
  const std::string reason = reason_without_script(import, refused);
  if (arguments.has("output")) write_files(arguments.text("output"), arguments.flag("force"), import, reason.empty());
  cli::Output out;
  if (arguments.flag("json")) {
    for (const foreign::Answer& a : import.answers) out.json(import_tool::record_of(a));
    for (const std::string& what : import.missing) out.json(json::object({{"type", "missing"}, {"what", what}}));
  } else if (!arguments.flag("quiet")) {
    out.text(import_tool::table_of(import, cli::Style::for_stdout()));
  }
  for (const std::string& what : import.missing) cli::print_error(kName, "missing: " + what);
  if (!arguments.flag("quiet")) {
    for (const std::string& what : import.unready) cli::print_error(kName, what);
    for (const std::string& line : lines_of(refused)) cli::print_error(kName, line);
    if (arguments.has("output") && reason.empty()) note_of_older(arguments.text("output"));
    if (arguments.has("output") && !reason.empty()) cli::print_error(kName, "run.sh is not written: " + reason);
  }
  if (!import.missing.empty()) return static_cast<int>(Exit::bad);
  return refused.empty() ? static_cast<int>(Exit::done) : kNoCounterpart;
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run(argc, argv, import_tool::command(), run_import, {h5::library_version()});
}
