// Help, generated from the flag table alone.
#include <algorithm>

#include "flags.h"
#include "fp8/cli/command.h"

namespace fp8::cli {
namespace {

constexpr std::size_t kHelpColumn = 30;  // first column of descriptions

// The words of `text` on lines of at most `columns`, each indented by `indent` spaces except the first.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns) {
  std::string out;
  std::size_t width = indent;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, space - at);
    if (width > indent && width + 1 + word.size() > columns) {
      out += '\n' + std::string(indent, ' ');
      width = indent;
    }
    if (width > indent) out += ' ';
    width += word.size() + (width > indent ? 1 : 0);
    out += word;
    at = space + 1;
  }
  return out;
}

// One entry of a list: `term` in the left column, `text` in the right one.
std::string entry(const std::string& term, const std::string& text, std::size_t columns) {
  std::string out = "  " + term;
  if (out.size() + 2 > kHelpColumn) {
    out += '\n' + std::string(kHelpColumn, ' ');
  } else {
    out.resize(kHelpColumn, ' ');
  }
  return out + wrapped(text, kHelpColumn, columns) + '\n';
}

std::string term_of(const Flag& flag) {
  std::string term = flag.letter != 0 ? std::string("-") + flag.letter + ", " : "    ";
  term += (offers_no(flag) ? "--[no-]" : "--") + flag.name;
  if (!flag.metavar.empty()) term += " " + flag.metavar;
  return term;
}

std::string text_of(const Flag& flag) {
  std::string text = flag.help;
  if (flag.kind == FlagKind::choice) {
    text += ":";
    for (const std::string& c : flag.choices) text += (&c == &flag.choices.front() ? " " : ", ") + c;
  }
  if (flag.kind == FlagKind::list) text += " (may be repeated)";
  if (!flag.default_text.empty() && flag.default_text != "off") text += " [" + flag.default_text + "]";
  return text;
}

std::string synopsis_of(const Command& command) {
  if (!command.synopsis.empty()) return command.synopsis;
  std::string text;
  for (const Positional& p : command.positionals) {
    const std::string dots = p.repeated ? "..." : "";
    text += p.required ? p.metavar + dots + " " : "[" + p.metavar + dots + "] ";
  }
  text += "[FLAGS]";
  if (command.takes_command) text += " -- COMMAND...";
  return text;
}

std::vector<std::string> groups_of(const Command& command) {
  std::vector<std::string> groups;
  for (const Flag& f : command.flags) {
    if (std::find(groups.begin(), groups.end(), f.group) == groups.end()) groups.push_back(f.group);
  }
  // The tool's own flags come first, the common ones last.
  std::stable_partition(groups.begin(), groups.end(), [](const std::string& g) { return g != "Common"; });
  return groups;
}

}  // namespace

std::string help(const Command& command, int columns) {
  const auto width = static_cast<std::size_t>(std::max(columns, 60));
  std::string out;
  if (!command.example.empty()) out += "Example: " + command.example + "\n\n";
  out += wrapped(command.name + ": " + command.about + ".", 0, width) + "\n\n";
  out += "Usage: " + wrapped(command.name + " " + synopsis_of(command), 7, width) + "\n";
  if (!command.positionals.empty()) out += "\nArguments:\n";
  for (const Positional& p : command.positionals) out += entry(p.metavar, p.help, width);
  for (const std::string& group : groups_of(command)) {
    out += "\n" + (group.empty() ? "Flags" : group) + ":\n";
    for (const Flag& f : command.flags) {
      if (f.group == group) out += entry(term_of(f), text_of(f), width);
    }
  }
  return out;
}

}  // namespace fp8::cli
