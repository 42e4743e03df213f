// fp8-generate: text that a checkpoint generates from prompts. See fp8-generate(1).
#include <algorithm>
#include <set>

#include "flags.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/chat/carried.h"
#include "fp8/cli/output.h"
#include "fp8/cli/run.h"
#include "fp8/data/tokenize.h"
#include "fp8/gemm/gemm.h"
#include "fp8/generate/ends.h"
#include "fp8/h5/types.h"
#include "fp8/json/json.h"
#include "fp8/json/records.h"
#include "fp8/model/record.h"

namespace {

using namespace fp8;
using generate::Codec;
using generate::Ids;

constexpr const char* kName = "fp8-generate";
constexpr std::uint64_t kMostText = std::uint64_t{1} << 26U;  // bytes of a prompt from standard input

// Throws unless exactly one prompt, or source of prompts, was given, and standard input is read once.
void check(const cli::Arguments& a) {
  const std::vector<std::string> prompt = a.positionals("prompt");
  const int given =
      static_cast<int>(!prompt.empty()) + static_cast<int>(a.has("ids")) + static_cast<int>(a.has("input"));
  if (given == 0) throw Error("PROMPT: needed, or --ids or --input");
  if (given > 1) throw Error("PROMPT, --ids and --input: only one of them");
  const bool reads_input = (!prompt.empty() && prompt.front() == "-") || (a.has("input") && a.text("input") == "-");
  if (a.positional("model") == "-" && reads_input) throw Error("-: standard input is already the checkpoint record");
  for (const char* flag : {"template", "any-template"})
    if (a.has("ids") && a.has(flag)) throw Error("--" + std::string(flag) + ": not with --ids");
}

// A tokenizer, and the chat template of its model.
struct Tokens {
  std::optional<Codec> codec;
  std::optional<chat::Carried> own_template;
};

// The tokenizer that --tokenizer names, or the checkpoint's. The template is that of --lora, of the checkpoint or of
// --tokenizer: the first of them that carries one.
Tokens tokens_of(const cli::Arguments& a, const ckpt::Checkpoint& checkpoint) {
  convert::TokenizerFiles files = convert::tokenizer_files(checkpoint, a.has("lora") ? a.text("lora") : "");
  Tokens out{.codec = {}, .own_template = std::move(files.own_template)};
  if (!a.has("tokenizer")) {
    out.codec = Codec::of(checkpoint, files.texts);
    return out;
  }
  data::DeclaredTokenizer declared = data::read_tokenizer(a.text("tokenizer"));
  out.codec = declared.file.empty() ? Codec() : Codec(declared.open(), std::move(declared.special));
  if (!out.own_template) out.own_template = std::move(declared.own_template);
  return out;
}

// Says that prompts of a chat model are plain text.
void note_plain_text(const chat::Carried& own, bool quiet) {
  if (quiet) return;
  cli::print_note(kName,
                  own.equivalent
                      ? "prompts are plain text, without the chat template of the model, " + own.equivalent->form.name
                      : own.where + ": Jinja that is not known (digest " + own.digest +
                            "), so prompts are plain text without a chat template; --template names one");
}

// The reader of prompts: with --template, or with the template of the model where its tokenizer allows.
generate::PromptReader reader_of(const cli::Arguments& a, const Tokens& tokens) {
  const Codec* const codec = tokens.codec ? &*tokens.codec : nullptr;
  if (a.has("ids")) return {codec, std::nullopt};
  if (a.has("template")) {
    chat::Choice given = chat::choose_template(a.text("template"), tokens.own_template, a.flag("any-template"));
    if (!given.note.empty() && !a.flag("quiet")) cli::print_note(kName, given.note);
    return {codec, std::move(given.form)};
  }
  chat::Choice own = chat::choose_template(std::nullopt, tokens.own_template, false);
  if (!own.form || codec == nullptr || codec->tokenizer() == nullptr) {
    if (tokens.own_template && codec != nullptr) note_plain_text(*tokens.own_template, a.flag("quiet"));
    return {codec, std::nullopt};
  }
  if (!a.flag("quiet")) cli::print_note(kName, own.note);
  try {
    return {codec, std::move(own.form)};
  } catch (const Error& e) {
    throw Error(e.what(), e.code(), {{"template", std::string(chat::kNoTemplate) + " for plain text"}});
  }
}

json::Value token_record(std::uint64_t prompt, std::size_t index, const generate::NewToken& token, bool text) {
  json::Value record = json::object({{"type", "token"}, {"prompt", prompt}, {"index", index}, {"id", token.id}});
  if (text) record.as_object().set("text", token.text);
  record.as_object().set("logprob", *token.log_probability);
  return record;
}

json::Value text_record(std::uint64_t prompt, std::size_t prompt_tokens, const generate::Generated& made, bool text) {
  json::Value record = json::object({{"type", "generation"},
                                     {"prompt", prompt},
                                     {"prompt_tokens", prompt_tokens},
                                     {"tokens", made.ids.size()},
                                     {"end", generate::name_of(made.end)}});
  if (text) record.as_object().set("text", made.text);
  record.as_object().set("ids", json::Array(made.ids.begin(), made.ids.end()));
  return record;
}

// The plain form of the input of fp8-judge: the ids of prompt and text, with log-probabilities of the text.
json::Value rollout_record(const Ids& prompt, const Ids& text, const std::vector<float>& log_probabilities) {
  json::Array ids(prompt.begin(), prompt.end()), logprobs(prompt.size()), mask(prompt.size(), json::Value(0));
  ids.insert(ids.end(), text.begin(), text.end());
  logprobs.insert(logprobs.end(), log_probabilities.begin(), log_probabilities.end());
  mask.resize(ids.size(), json::Value(1));
  return json::object({{"ids", std::move(ids)}, {"logprobs", std::move(logprobs)}, {"mask", std::move(mask)}});
}

// Whole characters as a terminal may show them, like terminal_safe(), except that newlines and tabs stay.
std::string shown(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
    out += terminal_safe(text.substr(0, end));
    if (end < text.size()) out += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// Generates and prints, one prompt after the other.
class Session {
 public:
  Session(const cli::Arguments& a, const convert::OpenModel& model, const Codec* codec, generate::Request request)
      : generator_(model, generate::precision_of(a, model)),
        codec_(codec),
        request_(std::move(request)),
        sampler_(generate::sampling_of(a)),
        json_(a.flag("json")),
        logprobs_(a.flag("logprobs")),
        verbose_(a.flag("verbose")),
        quiet_(a.flag("quiet")) {
    request_.log_probabilities = json_ || logprobs_;
  }

  void run(const Ids& prompt) {
    std::size_t index = 0;
    std::vector<float> log_probabilities;
    const generate::Generated made = generator_.run(prompt, request_, codec_, sampler_, [&](const auto& token) {
      if (logprobs_) return log_probabilities.push_back(*token.log_probability);
      if (json_) return out_.json(token_record(request_.prompt, index++, token, codec_ != nullptr));
      if (!token.text.empty()) out_.text(terminal_ ? shown(token.text) : token.text);
    });
    if (logprobs_) {
      out_.json(rollout_record(prompt, made.ids, log_probabilities));
      if (made.end == generate::End::context && !quiet_)
        cli::print_note(kName, "prompt " + std::to_string(request_.prompt) + ": ends after " +
                                   counted(std::ssize(made.ids), "token") + ", where the model's context is full");
    } else if (json_) {
      out_.json(text_record(request_.prompt, prompt.size(), made, codec_ != nullptr));
    } else {
      out_.text("\n");
    }
    if (verbose_) note(prompt.size(), made);
    ++request_.prompt;
  }

 private:
  void note(std::size_t prompt_tokens, const generate::Generated& made) const {
    std::string text = "prompt of " + std::to_string(prompt_tokens) + " tokens in " +
                       format_short(made.prompt_seconds, 3) + " s, " + std::to_string(made.ids.size()) + " new tokens";
    if (made.ids.size() > 1) {
      const double rate = static_cast<double>(made.ids.size() - 1) / made.token_seconds;
      text += ", " + format_short(rate, 4) + " tokens/s, " + format_short(rate * generator_.bytes_read() * 1e-9, 3) +
              " GB/s of weights";
    }
    cli::print_note(kName, text);
  }

  generate::Generator generator_;
  const Codec* codec_;
  generate::Request request_;
  generate::Sampler sampler_;
  bool json_, logprobs_, verbose_, quiet_;
  const bool terminal_ = cli::stdout_is_terminal();
  cli::Output out_;
};

// `make()`, whose result is checked; errors begin with `name`.
template <class Make>
Ids checked_prompt(const std::string& name, const hf::ModelConfig& config, const Make& make) {
  try {
    Ids prompt = make();
    generate::check_prompt(prompt, config);
    return prompt;
  } catch (const Error& e) {
    throw Error(name + ": " + e.what(), e.code(), e.hints());
  }
}

// Runs `session` on each record of a file.
void run_records(const std::string& path, generate::PromptReader& reader, const hf::ModelConfig& config, bool quiet,
                 Session& session) {
  std::set<std::string> noted;
  reader.on_ignored([&](const std::string& text) {
    if (!quiet && noted.insert(text).second) cli::print_note(kName, path + ": " + text);
  });
  json::RecordReader records(path, json::Layout::by_content, cli::waiting_note(kName, quiet));
  bool any = false;
  while (const std::optional<json::Record> record = records.next()) {
    any = true;
    const json::Value value = json::parse(*record, records.name());
    session.run(checked_prompt(records.name() + ": line " + std::to_string(record->line), config,
                               [&] { return reader.of_record(value); }));
  }
  if (!any) throw Error(records.name() + ": no prompts");
}

int run(const cli::Arguments& a) {
  check(a);
  convert::OpenModel model = convert::open_model(model::resolve_checkpoint_argument(a.positional("model")));
  for (const std::string& message : model.source.passed_over()) cli::print_note("fp8-generate", message);
  if (a.has("lora")) convert::add_adapter(model, a.text("lora"));
  const Tokens tokens = tokens_of(a, model.source);
  const Codec* const codec = tokens.codec ? &*tokens.codec : nullptr;
  generate::PromptReader reader = reader_of(a, tokens);
  generate::Request request{.max_tokens = a.integer("max-tokens"), .stops = a.list("stop")};
  const bool records = a.flag("json") || a.flag("logprobs");
  if (codec == nullptr && (!records || !request.stops.empty()))
    throw Error(model.source.path() + ": has no tokenizer", {{"tokenizer", "FILE, or bytes"}});
  if (!a.flag("ignore-end"))
    request.end_tokens = generate::end_tokens(model.source, model.config, codec, reader.template_end());
  const bool is_text = !a.positionals("prompt").empty();
  Ids prompt;  // prompt of text or ids, which is checked before weights are read
  if (!a.has("input"))
    prompt = checked_prompt(is_text ? "PROMPT" : "--ids", model.config, [&] {
      if (!is_text) return generate::parse_ids(a.text("ids"));
      const std::string text = a.positional("prompt");
      return reader.of_text(text == "-" ? read_text_file("/dev/stdin", kMostText) : text);
    });
  Session session(a, model, codec, std::move(request));
  if (a.has("input")) {
    run_records(a.text("input"), reader, model.config, a.flag("quiet"), session);
  } else {
    session.run(prompt);
  }
  return static_cast<int>(Exit::done);
}

}  // namespace

int main(int argc, char** argv) {
  return fp8::cli::run(argc, argv, fp8::generate::command(), run,
                       {fp8::h5::library_version(), fp8::gemm::library_version()});
}
