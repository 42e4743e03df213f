// Text and JSON reports of fp8-info.
#include "report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/tensor_meta.h"
#include "fp8/cli/output.h"
#include "fp8/hf/config.h"
#include "fp8/json/json.h"

namespace fp8::info {
namespace {

using TableRows = std::vector<std::vector<std::string>>;

std::string shape_text(const json::Value& shape) {
  std::string out;
  for (const json::Value& extent : shape.as_array()) {
    if (!out.empty()) out += 'x';
    out += std::to_string(extent.as_int());
  }
  return out.empty() ? "scalar" : out;
}

// About the experts of a model: "; 2 of 8 experts of width 96 in 3 of 4 layers".
std::string experts_text(const hf::ModelConfig& c) {
  if (!c.experts) return "";
  std::int64_t sparse = 0;
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) sparse += c.is_sparse(i) ? 1 : 0;
  return "; " + std::to_string(c.experts->per_token) + " of " + counted(c.experts->count, "expert") + " of width " +
         std::to_string(c.experts->intermediate_size) + " in " +
         (sparse == c.num_hidden_layers ? "every layer"
                                        : std::to_string(sparse) + " of " + counted(c.num_hidden_layers, "layer"));
}

// One line about the model.
std::string model_text(const json::Value& value) {
  try {
    const hf::ModelConfig c = hf::parse_config(value, "/config");
    return std::string(hf::name_of(c.family)) + ": " + counted(c.num_hidden_layers, "layer") + ", width " +
           std::to_string(c.hidden_size) + ", " + counted(c.num_attention_heads, "head") + " of " +
           std::to_string(c.head_dim) + " (" + std::to_string(c.num_key_value_heads) + " key/value), feed-forward " +
           std::to_string(c.intermediate_size) + ", vocabulary " + std::to_string(c.vocab_size) +
           (c.tie_word_embeddings ? ", tied" : "") + experts_text(c) +
           (c.lora ? "; adapters (LoRA) of rank " + std::to_string(c.lora->rank) + " on " +
                         counted(c.lora->targets.size(), "linear")
                   : "");
  } catch (const Error& e) {
    return e.what();
  }
}

std::string text_of(const json::Object& object, std::string_view key) {
  const json::Value* v = object.find(key);
  if (v == nullptr) return "";
  return v->is_string() ? v->as_string() : json::dump(*v);
}

// The rows that count the weights of a low precision; one of FP4 only if there are such weights.
TableRows precision_rows(const json::Array& tensors) {
  std::int64_t fp8 = 0, fp4 = 0, weights = 0;
  for (const json::Value& t : tensors) {
    if (!t.as_object().at("name").as_string().starts_with(ckpt::kWeights)) continue;
    const std::string precision = text_of(t.as_object(), "precision");
    ++weights;
    fp8 += precision == "fp8" ? 1 : 0;
    fp4 += precision == "fp4" ? 1 : 0;
  }
  const std::string of_all = " of " + counted(weights, "weight");
  TableRows rows;
  if (fp4 > 0) rows.push_back({"fp4", std::to_string(fp4) + of_all + " stored as FP4 codes"});
  if (fp8 > 0 || fp4 == 0) rows.push_back({"fp8", std::to_string(fp8) + of_all + " eligible"});
  return rows;
}

std::string train_text(const json::Value& train) {
  std::string out;
  if (!train.is_object()) return "/train is not an object";
  for (const std::string_view key : {"step", "tokens"}) {
    const std::string value = text_of(train.as_object(), key);
    if (!value.empty()) out += (out.empty() ? "" : ", ") + std::string(key) + " " + value;
  }
  const json::Value* settings = train.as_object().find("settings");
  const std::string documents =
      settings != nullptr && settings->is_object() ? text_of(settings->as_object(), "documents") : "";
  if (!documents.empty()) out += (out.empty() ? "" : ", ") + documents + " documents";
  return out.empty() ? "yes" : out;
}

// "600", or "600 (400 active)" of a model with experts.
std::string parameters_text(const json::Object& r) {
  const std::string active = text_of(r, "active_parameters");
  return text_of(r, "parameters") + (active.empty() ? "" : " (" + active + " active)");
}

TableRows summary(const json::Object& r) {
  const json::Array& tensors = r.at("tensors").as_array();
  const auto bytes = r.at("bytes").as_uint();
  TableRows rows = {
      {"path", r.at("path").as_string()},
      {"kind", r.at("kind").as_string() + ", format version " + std::to_string(r.at("version").as_int()) + ", " +
                   counted(r.at("files").as_int(), "file")},
      {"model", model_text(r.at("config"))},
      {"parameters", parameters_text(r) + ", " + human_bytes(bytes) + " in " + counted(tensors.size(), "tensor")}};
  std::ranges::move(precision_rows(tensors), std::back_inserter(rows));
  if (!r.at("train").is_null()) rows.push_back({"train", train_text(r.at("train"))});
  const json::Value& id = r.at("tokenizer_id");
  rows.push_back({"tokenizer", r.at("tokenizer").as_bool() ? "tokenizer.json"
                               : id.is_null()              ? "none"
                                                           : id.as_string()});
  std::string files;
  for (const json::Value& name : r.at("huggingface").as_array())
    files += (files.empty() ? "" : ", ") + name.as_string();
  if (!files.empty()) rows.push_back({"files", files});
  if (!r.at("template").is_null()) rows.push_back({"template", r.at("template").as_string()});
  if (r.contains("verified")) rows.push_back({"verified", "every byte"});
  if (r.at("provenance").is_array()) {
    for (const json::Value& entry : r.at("provenance").as_array()) {
      if (!entry.is_object()) continue;
      rows.push_back({"made by", text_of(entry.as_object(), "tool") + " " + text_of(entry.as_object(), "version") +
                                     ": " + text_of(entry.as_object(), "command")});
    }
  }
  return rows;
}

std::string summary_text(TableRows rows) {
  std::string out;
  for (std::vector<std::string>& row : rows) {
    row[0].resize(12, ' ');
    out += row[0] + terminal_safe(row[1]) + "\n";
  }
  return out;
}

std::string number_text(const json::Object& t, std::string_view key, int digits) {
  const json::Value* v = t.find(key);
  return v != nullptr && v->is_number() ? format_short(v->as_double(), digits) : "-";
}

// One line about moments: number of tensors and format.
std::string moments_text(const json::Array& tensors, std::string_view section) {
  std::int64_t n = 0;
  std::string format;
  for (const json::Value& t : tensors) {
    if (!t.as_object().at("name").as_string().starts_with(section)) continue;
    ++n;
    const std::string& dtype = t.as_object().at("dtype").as_string();
    if (format.empty()) format = dtype;
    if (format != dtype) format = "several formats";
  }
  return n == 0
             ? ""
             : std::string(section.substr(0, section.size() - 1)) + ": " + counted(n, "tensor") + ", " + format + "\n";
}

bool is_moment(const std::string& name) { return name.starts_with(ckpt::kMomentM) || name.starts_with(ckpt::kMomentV); }

std::string tensors_text(const json::Array& tensors) {
  const auto any_with = [&](std::string_view key) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const json::Value& t) { return t.as_object().contains(key); });
  };
  const bool statistics = any_with("absmax"), values = any_with("value");
  TableRows rows(1, {"tensor", "dtype", "shape", "precision"});
  if (values) rows[0].emplace_back("value");
  if (statistics) rows[0].insert(rows[0].end(), {"mean", "rms", "absmax", "nonfinite"});
  rows[0].emplace_back("reason");
  for (const json::Value& value : tensors) {
    const json::Object& t = value.as_object();
    const std::string& name = t.at("name").as_string();
    if (is_moment(name)) continue;
    std::vector<std::string> row{name, t.at("dtype").as_string(), shape_text(t.at("shape")), text_of(t, "precision")};
    if (values) row.push_back(number_text(t, "value", 9));
    if (statistics) {
      for (const char* key : {"mean", "rms", "absmax", "nonfinite"}) row.push_back(number_text(t, key, 4));
    }
    row.push_back(text_of(t, "reason"));
    for (std::string& cell : row) cell = terminal_safe(cell);
    rows.push_back(std::move(row));
  }
  return cli::table(rows) + moments_text(tensors, ckpt::kMomentM) + moments_text(tensors, ckpt::kMomentV);
}

}  // namespace

std::string checkpoint_text(const json::Value& record) {
  const json::Object& r = record.as_object();
  return summary_text(summary(r)) + "\n" + tensors_text(r.at("tensors").as_array());
}

json::Value distance_record(const std::string& a, const std::string& b, const convert::Distance& distance) {
  json::Array tensors;
  for (const convert::TensorDistance& t : distance.tensors) {
    json::Object entry;
    entry.set("name", t.name);
    entry.set("equal", t.equal);
    if (t.note.empty()) {
      entry.set("max_abs", t.max_abs);
      entry.set("relative_l2", t.relative_l2);
    } else {
      entry.set("note", t.note);
    }
    tensors.emplace_back(std::move(entry));
  }
  return json::object({{"type", "diff"},
                       {"a", a},
                       {"b", b},
                       {"equal", distance.equal},
                       {"same_config", distance.same_config},
                       {"same_train", distance.same_train},
                       {"tensors", std::move(tensors)}});
}

std::string distance_text(const std::string& a, const std::string& b, const convert::Distance& distance) {
  TableRows rows = {{"tensor", "max_abs", "relative_l2", "note"}};
  std::size_t different = 0;
  for (const convert::TensorDistance& t : distance.tensors) {
    different += t.equal ? 0U : 1U;
    if (t.note.empty()) {
      rows.push_back({t.name, format_short(t.max_abs, 6), format_short(t.relative_l2, 6), ""});
    } else {
      rows.push_back({t.name, "-", "-", t.note});
    }
  }
  std::string last = a + " and " + b + ": ";
  last += distance.equal
              ? "equal"
              : std::to_string(different) + " of " + std::to_string(distance.tensors.size()) + " tensors differ";
  if (!distance.same_config) last += "; the configurations differ";
  if (!distance.same_train) last += "; the state of training (/train) differs";
  return cli::table(rows) + terminal_safe(last) + "\n";
}

json::Value fit_record(const convert::TensorFit& tensor) {
  json::Value record = json::object({{"type", "tensor"},
                                     {"name", tensor.name},
                                     {"relative_l2", tensor.relative_l2},
                                     {"cosine", tensor.cosine},
                                     {"factor", tensor.factor}});
  if (!tensor.note.empty()) record.as_object().set("note", tensor.note);
  return record;
}

std::string fit_text(const std::string& a, const std::string& b, const convert::Fit& fit, double bound,
                     const std::vector<std::string>& suggestions) {
  const auto number = [](double x) { return std::isnan(x) ? "-" : format_short(x, 6); };
  TableRows rows = {{"tensor", "relative_l2", "cosine", "factor", "note"}};
  for (const convert::TensorFit& t : fit.tensors)
    if (!t.within(bound))
      rows.push_back({terminal_safe(t.name), number(t.relative_l2), number(t.cosine), number(t.factor), t.note});
  const std::size_t outside = rows.size() - 1;
  const std::string all = counted(static_cast<std::int64_t>(fit.tensors.size()), "tensor");
  std::string text, last = a + " and " + b + ": ";
  if (outside > 0) {
    text = cli::table(rows);
    last += std::to_string(outside) + " of " + all + " not within ";
  } else {
    const convert::TensorFit& worst = fit.tensors.front();
    if (worst.relative_l2 > 0)
      text = terminal_safe("largest relative L2: " + number(worst.relative_l2) + ", of " + worst.name) + "\n";
    last += all + " within ";
  }
  last += format_short(bound, 6);
  if (fit.head_dim > 0) last += "; heads of " + std::to_string(fit.head_dim) + " fit best";
  text += terminal_safe(last) + "\n";
  for (const std::string& suggestion : suggestions) text += terminal_safe(suggestion) + "\n";
  return text;
}

json::Value tokens_record(const std::string& path, const data::TokenInfo& info) {
  return json::object({{"type", "tokens"},
                       {"path", path},
                       {"tokens", info.tokens},
                       {"documents", info.documents},
                       {"vocab_size", info.vocab_size},
                       {"eos", info.eos ? json::Value(*info.eos) : json::Value()},
                       {"mask", info.mask},
                       {"sequence_length", info.sequence_length ? json::Value(*info.sequence_length) : json::Value()},
                       {"tokenizer", info.tokenizer ? json::Value(*info.tokenizer) : json::Value()},
                       {"template", info.chat_template ? json::Value(info.chat_template->text) : json::Value()}});
}

std::string tokens_text(const std::string& path, const data::TokenInfo& info) {
  return terminal_safe(path) + ": a token file, not a checkpoint: " + counted(info.tokens, "token") + ", " +
         counted(info.documents, "document") + ", vocabulary " + std::to_string(info.vocab_size) +
         (info.mask ? ", with a mask" : "") +
         (info.sequence_length ? ", packed into sequences of " + std::to_string(*info.sequence_length) : "") +
         (info.chat_template ? ", template " + terminal_safe(excerpt(info.chat_template->text)) : "") + "\n";
}

}  // namespace fp8::info
