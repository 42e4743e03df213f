// Flags in groups: prompts, sampling, precision.
#include "flags.h"

#include "fp8/base/error.h"
#include "fp8/chat/template.h"
#include "fp8/convert/quantize.h"

namespace fp8::generate {
namespace {

using cli::Flag;
using cli::FlagKind;

constexpr const char* kDelayed = "delayed";

std::vector<Flag> in_group(std::vector<Flag> flags, const std::string& group) {
  for (Flag& flag : flags) flag.group = group;
  return flags;
}

std::vector<Flag> prompt_flags() {
  return {{.name = "ids",
           .kind = FlagKind::text,
           .metavar = "N,...",
           .help = "token ids of the prompt, instead of PROMPT; they need no tokenizer"},
          {.name = "input",
           .kind = FlagKind::path,
           .metavar = "FILE",
           .help = "prompts as JSON Lines, each with messages, text or ids, instead of PROMPT; -: standard input"},
          {.name = "template",
           .kind = FlagKind::text,
           .metavar = "NAME|FILE",
           .help = "chat template of messages, in which PROMPT is the user's: llama3, qwen, mistral, llama2, chatml, a "
                   "file, or none for plain text [the model's own]"},
          {.name = "any-template", .help = "accept another template than the model's own"},
          {.name = "tokenizer",
           .kind = FlagKind::path,
           .metavar = "bytes|FILE",
           .help = "tokenizer, instead of the checkpoint's: bytes, a tokenizer.json or its folder, or a checkpoint",
           .suggestions = {"bytes"}}};
}

std::vector<Flag> sampling_flags() {
  return {{.name = "max-tokens",
           .kind = FlagKind::integer,
           .metavar = "N",
           .default_text = "256",
           .help = "most new tokens of a text",
           .min = 1,
           .max = 1e9},
          {.name = "stop",
           .kind = FlagKind::list,
           .metavar = "TEXT",
           .help = "text that ends a text, which it is not part of"},
          {.name = "ignore-end", .help = "go on after tokens that end a text"},
          {.name = "greedy", .help = "always take the most probable token, as --temperature 0"},
          {.name = "temperature",
           .kind = FlagKind::real,
           .metavar = "X",
           .default_text = "1",
           .help = "divide logits by this before tokens are drawn; 0: always the most probable token",
           .min = 0,
           .max = 1e3},
          {.name = "top-k",
           .kind = FlagKind::integer,
           .metavar = "K",
           .default_text = "0",
           .help = "draw from the K most probable tokens; 0: from all",
           .min = 0,
           .max = 1e9},
          {.name = "top-p",
           .kind = FlagKind::real,
           .metavar = "P",
           .default_text = "1",
           .help = "draw from the most probable tokens whose probabilities reach the sum P",
           .min = 1e-9,
           .max = 1},
          {.name = "seed",
           .kind = FlagKind::integer,
           .metavar = "N",
           .default_text = "0",
           .help = "seed of the random numbers",
           .min = 0,
           .max = 1e15}};
}

Flag lora_flag() {
  return {.name = "lora",
          .kind = FlagKind::path,
          .metavar = "FOLDER",
          .help = "apply the PEFT adapter in a folder beside the checkpoint's weights"};
}

std::vector<Flag> precision_flags() {
  std::vector<std::string> recipes;
  for (const quant::Recipe& r : quant::recipes())
    if (r.name != kDelayed) recipes.emplace_back(r.name);
  return {{.name = "precision",
           .kind = FlagKind::choice,
           .metavar = "NAME",
           .default_text = "bf16",
           .help = "precision of matmuls; FP8 is emulated",
           .choices = {"fp32", "bf16", "fp8"}},
          {.name = "recipe",
           .kind = FlagKind::choice,
           .metavar = "NAME",
           .help = "scaling of FP8 operands, see fp8-recipes(7) [tensorwise; FP8 codes: that of their scales]",
           .choices = std::move(recipes)}};
}

// The recipe whose weights have scales of this kind.
const quant::Recipe& recipe_of(quant::Granularity scaling) {
  for (const quant::Recipe& r : quant::recipes())
    if (r.forward.w.granularity == scaling) return r;
  throw Error("no recipe has scales as those of this checkpoint's codes");
}

}  // namespace

cli::Command command() {
  cli::Command c;
  c.name = "fp8-generate";
  c.about = "generate text with a checkpoint";
  c.example = "fp8-generate run 'Once upon a time'";
  c.positionals = {cli::checkpoint_argument("model", "CHECKPOINT|-", "checkpoint to sample from"),
                   {.name = "prompt",
                    .metavar = "PROMPT",
                    .help = "text to continue; -: standard input, to its end",
                    .required = false}};
  for (const auto& group : {in_group(prompt_flags(), "Prompts"), in_group(sampling_flags(), "Tokens"),
                            in_group({lora_flag()}, "Adapters (LoRA)"), in_group(precision_flags(), "Precision")})
    c.flags.insert(c.flags.end(), group.begin(), group.end());
  c.flags.push_back(cli::json_flag());
  c.flags.push_back({.name = "logprobs",
                     .help = "print for each prompt the ids and the log-probabilities of the text, as fp8-judge reads "
                             "them, instead of text"});
  return c;
}

Sampling sampling_of(const cli::Arguments& a) {
  for (const char* flag : {"temperature", "top-k", "top-p"})
    if (a.flag("greedy") && a.has(flag)) throw Error("--greedy: contradicts --" + std::string(flag));
  return {.temperature = a.flag("greedy") ? 0 : a.real("temperature"),
          .top_k = a.integer("top-k"),
          .top_p = a.real("top-p"),
          .seed = static_cast<std::uint64_t>(a.integer("seed"))};
}

Precision precision_of(const cli::Arguments& a, const convert::OpenModel& model) {
  const std::string name = a.text("precision");
  if (name != "fp8") {
    if (a.has("recipe")) throw Error("--recipe: needs --precision fp8");
    return {name == "fp32" ? dtype::DType::f32 : dtype::DType::bf16, nullptr};
  }
  const std::optional<quant::Granularity> stored = convert::stored_scaling(model.source, model.table);
  if (!stored)
    return {dtype::DType::bf16, &(a.has("recipe") ? quant::find_recipe(a.text("recipe")) : quant::recipes().front())};
  const quant::Recipe& recipe = recipe_of(*stored);
  const bool fits = !a.has("recipe") || quant::find_recipe(a.text("recipe")).forward.w.granularity == *stored;
  if (!fits)
    throw Error("--recipe: " + a.text("recipe") + " has other scales than the codes of " + model.source.path() +
                ", which are those of " + std::string(recipe.name));
  return {dtype::DType::bf16, a.has("recipe") ? &quant::find_recipe(a.text("recipe")) : &recipe};
}

}  // namespace fp8::generate
