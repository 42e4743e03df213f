// The forms of records. Sources: grpo.py of NeMo-RL (log_data), the OpenAI-compatible protocol of vLLM with
// return_token_ids, and the native /generate of SGLang (meta_info).
#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/judge/rollouts.h"

namespace fp8::judge {
namespace {

using json::Array;
using json::Object;
using json::Value;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr double kLowest = -9999;   // vLLM's number in place of minus infinity
constexpr double kRounding = 1e-5;  // above 0 that sums in f32 may give

constexpr const char* kRecord = "the record";

std::int32_t id_of(const Value& value, const std::string& member, std::int64_t vocabulary) {
  if (!value.is_int()) throw Error(member + ": an id is not an integer");
  const std::int64_t id = value.as_int();
  if (id < 0 || id >= vocabulary)
    throw Error(member + ": id " + std::to_string(id) + " is not in the model's vocabulary of " +
                std::to_string(vocabulary));
  return static_cast<std::int32_t>(id);
}

double logprob_of(const Value& value, const std::string& member) {
  if (value.is_null()) return kMissing;
  if (!value.is_number()) throw Error(member + ": a log-probability is not a number");
  const double x = value.as_double();
  if (x > kRounding) throw Error(member + ": " + format_short(x, 6) + " is positive, so no log-probability");
  return x <= kLowest ? kMissing : std::min(x, 0.0);
}

const Array& array_in(const Value& value, const std::string& member) {
  if (!value.is_array()) throw Error(member + ": is not an array");
  return value.as_array();
}

const Object& object_in(const Value& value, const std::string& member) {
  if (!value.is_object()) throw Error(member + ": is not an object");
  return value.as_object();
}

// An array, or the only element of an array of arrays, as a batch of one sample is stored.
const Array& flat(const Value& value, const std::string& member) {
  const Array& outer = array_in(value, member);
  return outer.size() == 1 && outer.front().is_array() ? outer.front().as_array() : outer;
}

const Value& needed(const Object& o, const std::string& member, const std::string& how = "") {
  const Value* value = o.find(member);
  if (value == nullptr || value->is_null()) throw Error("has no \"" + member + "\"" + how);
  return *value;
}

void check_length(std::size_t found, std::size_t ids, const std::string& member) {
  if (found != ids) throw Error(member + ": " + std::to_string(found) + " values for " + std::to_string(ids) + " ids");
}

void add_ids(const Value& list, const std::string& member, std::int64_t vocabulary, Rollout& r) {
  for (const Value& id : flat(list, member)) r.ids.push_back(id_of(id, member, vocabulary));
}

std::optional<double> temperature_of(const Object& o) {
  const Value* t = o.find("temperature");
  if (t == nullptr || t->is_null()) return std::nullopt;
  constexpr double kLeast = 1e-3, kMost = 1e3;
  if (!t->is_number() || !(t->as_double() >= kLeast && t->as_double() <= kMost))
    throw Error("temperature: is not a number from 0.001 to 1000");
  return t->as_double();
}

// Reads a mask of `count` values, which are numbers or booleans.
void read_mask(const Value& list, const std::string& member, Rollout& r) {
  const Array& values = flat(list, member);
  check_length(values.size(), r.ids.size(), member);
  r.mask.clear();
  for (const Value& v : values) {
    if (!v.is_bool() && !v.is_number()) throw Error(member + ": a value is neither a number nor a boolean");
    r.mask.push_back(v.is_bool() ? v.as_bool() : v.as_double() != 0);
  }
}

void read_logprobs(const Value& list, const std::string& member, Rollout& r) {
  const Array& values = flat(list, member);
  check_length(values.size(), r.ids.size(), member);
  for (const Value& v : values) r.logprobs.push_back(logprob_of(v, member));
}

Rollout plain(const Object& o, const ReadOptions& options) {
  Rollout r;
  add_ids(needed(o, "ids"), "ids", options.vocabulary, r);
  read_logprobs(needed(o, "logprobs"), "logprobs", r);
  if (const Value* mask = o.find("mask"); mask != nullptr && !mask->is_null()) read_mask(*mask, "mask", r);
  r.temperature = temperature_of(o);
  return r;
}

// The number in a member, or the only element of an array there.
std::optional<std::int64_t> length_in(const Object& o, const std::string& member) {
  const Value* v = o.find(member);
  if (v == nullptr || v->is_null()) return std::nullopt;
  const Value& one = v->is_array() && v->as_array().size() == 1 ? v->as_array().front() : *v;
  if (!one.is_int()) throw Error(member + ": is not an integer");
  return one.as_int();
}

void cut(Rollout& r, std::int64_t length) {
  const auto n = static_cast<std::size_t>(length);
  if (length < 1 || n > r.ids.size())
    throw Error("input_lengths: " + std::to_string(length) + " of " + std::to_string(r.ids.size()) + " ids");
  r.ids.resize(n);
  r.logprobs.resize(n);
  if (!r.mask.empty()) r.mask.resize(n);
}

// Log-probabilities of NeMo-RL are 0 outside of the mask, and padded as the ids are.
Rollout nemo_rl(const Object& o, const ReadOptions& options) {
  Rollout r;
  add_ids(needed(o, "token_ids", ""), "token_ids", options.vocabulary, r);
  const std::string member = options.trainer ? "prev_logprobs" : "generation_logprobs";
  read_logprobs(needed(o, member), member, r);
  read_mask(needed(o, "token_loss_mask"), "token_loss_mask", r);
  if (const auto length = length_in(o, "input_lengths")) cut(r, *length);
  if (const Value* used = o.find("sample_loss_mask"); used != nullptr && !used->is_null()) {
    const Value& one = used->is_array() && used->as_array().size() == 1 ? used->as_array().front() : *used;
    if (!one.is_number()) throw Error("sample_loss_mask: is not a number");
    if (one.as_double() == 0) r.mask.assign(r.ids.size(), 0);
  }
  return r;
}

// The log-probabilities of a prompt: null, then for each id an object of candidates by id.
void add_prompt_logprobs(const Value* list, Rollout& r) {
  r.logprobs.assign(r.ids.size(), kMissing);
  if (list == nullptr || list->is_null()) return;
  const std::string member = "prompt_logprobs";
  const Array& values = array_in(*list, member);
  check_length(values.size(), r.ids.size(), member);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].is_null()) continue;
    const std::string position = member + ": position " + std::to_string(i);
    const Value* found = object_in(values[i], position).find(std::to_string(r.ids[i]));
    if (found == nullptr) throw Error(position + " lacks its own id");
    r.logprobs[i] = logprob_of(needed(object_in(*found, position), "logprob"), member);
  }
}

// Log-probabilities of new tokens: {"token_logprobs": [...]} of completions, {"content": [{"logprob"}]} of chat.
void add_new_logprobs(const Object& logprobs, Rollout& r) {
  if (const Value* list = logprobs.find("token_logprobs")) {
    for (const Value& v : array_in(*list, "token_logprobs")) r.logprobs.push_back(logprob_of(v, "token_logprobs"));
  } else {
    for (const Value& v : array_in(needed(logprobs, "content"), "content"))
      r.logprobs.push_back(logprob_of(needed(object_in(v, "content"), "logprob"), "content"));
  }
}

std::vector<Rollout> vllm(const Object& o, const ReadOptions& options) {
  const std::string how = "; ask vLLM with \"return_token_ids\": true";
  std::vector<Rollout> all;
  for (const Value& choice_value : array_in(needed(o, "choices"), "choices")) {
    const Object& choice = object_in(choice_value, "choices");
    const auto member = [&](const std::string& name) {
      const Value* own = choice.find(name);
      return own != nullptr && !own->is_null() ? own : o.find(name);
    };
    Rollout r;
    const Value* prompt = member("prompt_token_ids");
    if (prompt == nullptr || prompt->is_null()) throw Error("has no \"prompt_token_ids\"" + how);
    add_ids(*prompt, "prompt_token_ids", options.vocabulary, r);
    add_prompt_logprobs(member("prompt_logprobs"), r);
    add_ids(needed(choice, "token_ids", how), "token_ids", options.vocabulary, r);
    add_new_logprobs(object_in(needed(choice, "logprobs", "; ask vLLM with \"logprobs\""), "logprobs"), r);
    check_length(r.logprobs.size(), r.ids.size(), "logprobs");
    r.temperature = temperature_of(o);
    all.push_back(std::move(r));
  }
  return all;
}

// SGLang: [logprob, id, text] for each token.
void add_triples(const Value& list, const std::string& member, const ReadOptions& options, Rollout& r) {
  for (const Value& value : array_in(list, member)) {
    const Array& triple = array_in(value, member);
    if (triple.size() < 2) throw Error(member + ": an element has no id");
    r.logprobs.push_back(logprob_of(triple[0], member));
    r.ids.push_back(id_of(triple[1], member, options.vocabulary));
  }
}

Rollout sglang(const Object& o, const ReadOptions& options) {
  const std::string how = "; ask SGLang with \"return_logprob\": true, \"logprob_start_len\": 0";
  const Object& info = object_in(needed(o, "meta_info"), "meta_info");
  Rollout r;
  if (const Value* ids = o.find("input_ids"); ids != nullptr && !ids->is_null()) {
    add_ids(*ids, "input_ids", options.vocabulary, r);
    r.logprobs.assign(r.ids.size(), kMissing);
  } else {
    add_triples(needed(info, "input_token_logprobs", how), "input_token_logprobs", options, r);
    const std::int64_t prompt = info.get_int_or("prompt_tokens", static_cast<std::int64_t>(r.ids.size()), kRecord);
    if (prompt != static_cast<std::int64_t>(r.ids.size()))
      throw Error("input_token_logprobs: " + std::to_string(r.ids.size()) + " of " + std::to_string(prompt) +
                  " tokens of the prompt" + how);
  }
  add_triples(needed(info, "output_token_logprobs", how), "output_token_logprobs", options, r);
  r.temperature = temperature_of(o);
  return r;
}

Form form_of(const Object& o) {
  if (o.contains("ids")) return Form::plain;
  if (o.contains("generation_logprobs") || o.contains("token_loss_mask")) return Form::nemo_rl;
  if (o.contains("choices")) return Form::vllm;
  if (o.contains("meta_info")) return Form::sglang;
  if (o.contains("output") || o.contains("response") || o.contains("text"))
    throw Error(
        "has decoded text alone, so the tokens of the server cannot be known: text can be divided into tokens "
        "in several ways");
  throw Error("is no rollout: it has none of ids, generation_logprobs, choices and meta_info");
}

std::vector<Rollout> read(Form form, const Object& o, const ReadOptions& options) {
  if (options.trainer && form != Form::nemo_rl)
    throw Error("has the log-probabilities of one side alone, which are judged without --trainer");
  switch (form) {
    case Form::automatic:
    case Form::plain:
      return {plain(o, options)};
    case Form::nemo_rl:
      return {nemo_rl(o, options)};
    case Form::vllm:
      return vllm(o, options);
    case Form::sglang:
      return {sglang(o, options)};
  }
  return {};
}

}  // namespace

std::vector<Rollout> parse_rollouts(const Value& record, const ReadOptions& options) {
  if (!record.is_object()) throw Error("is not an object");
  const Object& o = record.as_object();
  std::vector<Rollout> all = read(options.form == Form::automatic ? form_of(o) : options.form, o, options);
  for (Rollout& r : all) {
    if (r.ids.empty()) throw Error("has no ids");
    if (r.mask.empty()) r.mask.assign(r.ids.size(), 1);
  }
  return all;
}

}  // namespace fp8::judge
