// An import from its files to its answers.
#include "fp8/foreign/import.h"

#include <algorithm>
#include <map>

#include "builder.h"
#include "finish.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/json/json.h"
#include "trainers.h"

namespace fp8::foreign {
namespace {

const Trainer& named_trainer(const std::string& name) {
  std::string all;
  std::vector<std::string> names;
  for (const Trainer& t : trainers()) {
    if (t.name == name) return t;
    names.emplace_back(t.name);
    all += (all.empty() ? "" : ", ") + names.back();
  }
  throw Error(cli::flag_name("from") + ": '" + excerpt(name) + "' is not one of " + all +
              cli::did_you_mean(name, names));
}

// The trainer whose keys a document has. That document becomes the first.
const Trainer& trainer_of(Import& import) {
  if (import.options.from) return named_trainer(*import.options.from);
  const Trainer* best = nullptr;
  int most = 0;
  std::string all;
  std::size_t place = 0;
  for (const Trainer& t : trainers()) {
    for (std::size_t i = 0; i < import.documents.size(); ++i)
      if (const int score = t.score(import.documents[i]); score > most) {
        best = &t;
        most = score;
        place = i;
      }
    all += (all.empty() ? "" : ", ") + std::string(t.title);
  }
  std::rotate(import.documents.begin(), import.documents.begin() + static_cast<std::ptrdiff_t>(place),
              import.documents.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  if (best == nullptr)
    throw Error(import.documents.front().path + ": no key that only one trainer has, of " + all,
                {{"from", "names the trainer"}});
  return *best;
}

// Calls f(path, value) for each key, in the order of the file.
template <class F>
void for_keys(const json::Value& value, const std::string& path, const F& f) {
  if (!path.empty()) f(path, value);
  if (value.is_array())
    for (std::size_t i = 0; i < value.as_array().size(); ++i) for_keys(value.as_array()[i], element_path(path, i), f);
  if (value.is_object())
    for (const auto& [key, member] : value.as_object()) for_keys(member, member_path(path, key), f);
}

// Values that a trainer takes from the environment, or from other keys, are not there.
void note_references(Import& import) {
  for (const Document& d : import.documents)
    for_keys(d.root, "", [&](const std::string& path, const json::Value& value) {
      if (value.is_string() && value.as_string().find("${") != std::string::npos)
        import.missing.push_back(d.path + ": " + path + ": " + excerpt(value.as_string()) +
                                 " refers to the environment or to another key: write the value");
    });
}

// Throws Error for a file that the trainer's reader did not ask for.
void check_all_read(const Import& import) {
  for (std::size_t i = 1; i < import.options.files.size(); ++i) {
    const Document& d = import.documents[i];
    const bool empty = d.root.is_object() && d.root.as_object().empty();
    if (!empty && std::ranges::none_of(import.answers, [&](const Answer& a) { return a.file == d.path; }))
      throw Error(d.path + ": not read: it is no file of Accelerate or DeepSpeed that goes with " +
                  import.documents.front().path);
  }
}

// Answers in the order of the files, defaults last.
void sort_answers(Import& import) {
  std::map<std::pair<std::string, std::string>, std::size_t> order;
  for (const Document& d : import.documents)
    for_keys(d.root, "", [&](const std::string& path, const json::Value&) {
      order.emplace(std::pair(d.path, path), order.size());
    });
  std::ranges::stable_sort(import.answers, {}, [&](const Answer& a) {
    const auto it = order.find({a.file, a.key});
    return it == order.end() ? order.size() : it->second;
  });
}

}  // namespace

int keys_in(const Document& document, std::initializer_list<const char*> paths) {
  return static_cast<int>(
      std::ranges::count_if(paths, [&](const char* path) { return find(document, path) != nullptr; }));
}

void Import::set(std::string_view flag, json::Value value) { flags.set(flag, std::move(value)); }

void Import::add_default(std::string key, json::Value value, std::string here, std::string why) {
  answers.push_back({documents.front().path, std::move(key), std::move(value), std::move(here), Class::trainer_default,
                     std::move(why)});
}

const std::vector<Trainer>& trainers() {
  static const std::vector<Trainer> all = {
      {"llama-factory", "LLaMA-Factory", score_llama_factory, read_llama_factory},
      {"automodel", "NeMo AutoModel", score_automodel, read_automodel},
      {"kempner", "KempnerForge", score_kempner, read_kempner},
      {"axolotl", "Axolotl", score_axolotl, read_axolotl},
  };
  return all;
}

Import read(const Options& options) {
  Import import;
  import.options = options;
  if (options.files.empty()) throw Error("FILE: needed");
  for (const std::string& file : options.files) import.documents.push_back(read_document(file));
  const Trainer& trainer = trainer_of(import);
  import.trainer = trainer.name;
  trainer.read(import);
  check_all_read(import);
  note_references(import);
  finish(import);
  sort_answers(import);
  return import;
}

std::vector<Answer> refused(const Import& import) {
  const std::vector<std::string>& allow = import.options.allow;
  std::vector<Answer> all;
  for (const Answer& a : import.answers) {
    const auto allowed = [&](const std::string& name) {
      const bool below = a.key.starts_with(name + ".") || a.key.starts_with(name + "[");
      return name == "all" || name == a.key || below;
    };
    if (a.cls == Class::no_counterpart && std::ranges::none_of(allow, allowed)) all.push_back(a);
  }
  return all;
}

std::string configuration_text(const Import& import) { return json::dump(import.flags, 2) + "\n"; }

}  // namespace fp8::foreign
