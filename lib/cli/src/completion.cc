// Completion scripts for bash, zsh and fish, generated from the flag table alone.
#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "flags.h"
#include "fp8/cli/command.h"

namespace fp8::cli {
namespace {

using Words = std::vector<std::string>;

// The forms of a flag: `-o`, `--output`; `--no-name` if a toggle is not off by default.
Words spellings(const Flag& flag) {
  Words all;
  if (flag.letter != 0) all.push_back(std::string("-") + flag.letter);
  all.push_back("--" + flag.name);
  if (offers_no(flag)) all.push_back("--no-" + flag.name);
  return all;
}

std::string joined(const Words& words, const std::string& separator) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : separator) + w;
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::string function_of(const Command& command) { return "_" + replaced(command.name, "-", "_"); }

// The words that a flag's value may be, or is likely to be.
const Words& values_of(const Flag& flag) { return flag.kind == FlagKind::choice ? flag.choices : flag.suggestions; }

Words values_of(const std::vector<Positional>& positionals) {
  Words all;
  for (const Positional& p : positionals) all.insert(all.end(), p.suggestions.begin(), p.suggestions.end());
  return all;
}

// --- bash

std::string bash_words(const Words& words, bool files) {
  return "mapfile -t COMPREPLY < <(compgen " + std::string(files ? "-f " : "") +
         (words.empty() ? "" : "-W '" + joined(words, " ") + "' ") + "-- \"$word\")";
}

// The command that completes the value of a flag; empty if there is none.
std::string bash_value(const Flag& flag) {
  if (flag.kind == FlagKind::path) return bash_words({}, true);
  return values_of(flag).empty() ? "" : bash_words(values_of(flag), false);
}

// Completes `mpirun -n N TOOL WORDS` with the completion of TOOL.
constexpr const char* kBashLauncher = R"script(_fp8_launched() {
  local word=${COMP_WORDS[COMP_CWORD]} i tool
  for ((i = 1; i < COMP_CWORD; ++i)); do
    tool=${COMP_WORDS[i]##*/}
    [[ $tool == fp8-* ]] || continue
    declare -F "_${tool//-/_}" >/dev/null || eval "$("${COMP_WORDS[i]}" --completion bash 2>/dev/null)"
    COMP_WORDS=("${COMP_WORDS[@]:i}")
    COMP_CWORD=$((COMP_CWORD - i))
    "_${tool//-/_}"
    return
  done
  mapfile -t COMPREPLY < <(compgen -c -f -- "$word")
}
complete -p mpirun >/dev/null 2>&1 || complete -o filenames -F _fp8_launched mpirun mpiexec
)script";

std::string bash_completion(const Command& command) {
  std::string cases;
  Words all;
  for (const Flag& f : command.flags) {
    const Words words = spellings(f);
    all.insert(all.end(), words.begin(), words.end());
    if (f.kind == FlagKind::toggle) continue;
    const std::string action = bash_value(f);
    cases += "    " + joined(words, " | ") + ")\n" + (action.empty() ? "" : "      " + action + "\n") +
             "      return\n      ;;\n";
  }
  return "# Completion of " + command.name + " for bash.\n" + function_of(command) + "() {\n" +
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "  COMPREPLY=()\n"
         "  # bash makes a word of the = in --name=value\n"
         "  if [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
         "  if [[ $word == = ]]; then word=; before=${COMP_WORDS[COMP_CWORD - 1]}; fi\n"
         "  case $before in\n" +
         cases +
         "  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    " +
         bash_words(all, false) +
         "\n"
         "  else\n"
         "    " +
         bash_words(values_of(command.positionals), true) +
         "\n"
         "  fi\n"
         "}\n"
         "complete -o filenames -F " +
         function_of(command) + " " + command.name + "\n" + (command.launched ? kBashLauncher : "");
}

// --- zsh

// Text inside [...] of a specification in single quotes.
std::string zsh_text(std::string text) {
  text = replaced(text, "\\", "\\\\");
  for (const char* c : {"[", "]", ":"}) text = replaced(text, c, std::string("\\") + c);
  return replaced(text, "'", "'\\''");
}

std::string zsh_action(const Words& words, bool files) {
  if (words.empty()) return files ? "_files" : " ";
  const std::string list = "(" + joined(words, " ") + ")";
  return files ? "{_alternative \"words\\:word\\:" + list + "\" \"files\\:file\\:_files\"}" : list;
}

std::string zsh_flag(const Flag& flag) {
  std::string specs;
  for (const std::string& form : spellings(flag)) {
    std::string spec = (flag.kind == FlagKind::list ? "*" : "") + form;
    if (flag.kind != FlagKind::toggle) spec += form.starts_with("--") ? "=" : "+";
    spec += "[" + zsh_text(flag.help) + "]";
    if (flag.kind != FlagKind::toggle)
      spec += ":" + zsh_text(flag.metavar) + ":" + zsh_action(values_of(flag), flag.kind == FlagKind::path);
    specs += " \\\n    '" + spec + "'";
  }
  return specs;
}

// Completes `mpirun -n N TOOL WORDS` with the completion of TOOL.
constexpr const char* kZshLauncher = R"script(_fp8_launched() {
  local -i i
  for (( i = 2; i < CURRENT; ++i )); do
    [[ ${words[i]:t} == fp8-* ]] || continue
    words=("${(@)words[i,-1]}")
    (( CURRENT -= i - 1 ))
    _normal
    return
  done
  _alternative 'commands:command:_command_names -e' 'files:file:_files'
}
)script";

std::string zsh_completion(const Command& command) {
  std::string specs;
  for (const Flag& f : command.flags) specs += zsh_flag(f);
  for (const Positional& p : command.positionals)
    specs += " \\\n    '" + std::string(p.repeated ? "*" : "") + ":" + zsh_text(p.metavar) + ":" +
             zsh_action(p.suggestions, true) + "'";
  const std::string function = function_of(command);
  const std::string launchers = command.launched ? " mpirun mpiexec" : "";
  return "#compdef " + command.name + launchers + "\n# Completion of " + command.name + " for zsh.\n" + function +
         "() {\n  _arguments -s -S" + specs + "\n}\n" + (command.launched ? kZshLauncher : "") +
         "if [[ $funcstack[1] == " + function_of(command) + " || $funcstack[1] == _" + command.name + " ]]; then\n" +
         (command.launched
              ? "  case $service in\n    mpirun | mpiexec) _fp8_launched ;;\n    *) " + function + " ;;\n  esac\n"
              : "  " + function + "\n") +
         "else\n  compdef " + function + " " + command.name + "\n" +
         (command.launched ? "  compdef _fp8_launched mpirun mpiexec\n" : "") + "fi\n";
}

// --- fish

std::string fish_text(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// Completes `mpirun -n N TOOL WORDS` with the completion of TOOL.
constexpr const char* kFishLauncher = R"script(function __fp8_launched
    set -l words (commandline -opc) (commandline -ct)
    for i in (seq 2 (math (count $words) - 1))
        string match -qr '(^|/)fp8-[a-z]+$' -- $words[$i]; or continue
        set -l line (string escape -- $words[$i..-2])
        complete -C "$line $words[-1]"
        return
    end
end
complete -c mpirun -a '(__fp8_launched)'
complete -c mpiexec -a '(__fp8_launched)'
)script";

std::string fish_completion(const Command& command) {
  const std::string start = "complete -c " + command.name;
  std::string text = "# Completion of " + command.name + " for fish.\n";
  for (const Flag& f : command.flags) {
    std::string line = start;
    if (f.letter != 0) line += std::string(" -s ") + f.letter;
    line += " -l " + f.name;
    if (f.kind == FlagKind::path) line += " -r -F";
    if (f.kind != FlagKind::toggle && f.kind != FlagKind::path) line += " -x";
    if (!values_of(f).empty()) line += " -a " + fish_text(joined(values_of(f), " "));
    text += line + " -d " + fish_text(f.help) + "\n";
    if (offers_no(f)) text += start + " -l no-" + f.name + " -d " + fish_text("not: " + f.help) + "\n";
  }
  const Words words = values_of(command.positionals);
  if (!words.empty()) text += start + " -a " + fish_text(joined(words, " ")) + "\n";
  return text + (command.launched ? kFishLauncher : "");
}

}  // namespace

std::vector<std::string> completion_shells() { return {"bash", "zsh", "fish"}; }

std::string completion(const Command& command, std::string_view shell) {
  if (shell == "bash") return bash_completion(command);
  if (shell == "zsh") return zsh_completion(command);
  if (shell == "fish") return fish_completion(command);
  throw std::logic_error("no completion for " + std::string(shell));
}

}  // namespace fp8::cli
