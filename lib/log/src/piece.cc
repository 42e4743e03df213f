// Parses lines into blocks of steps. A step record with the same members as the one before is scanned by a fast path;
// every other line is parsed as JSON.
#include "piece.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/utc.h"
#include "fp8/json/flat.h"
#include "fp8/json/json.h"
#include "statistics.h"

namespace fp8::log {
namespace {

using json::Scalar;
using json::Type;

constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

bool number_like(const Scalar& s) { return s.type == Type::integer || s.type == Type::real || s.type == Type::boolean; }

bool is_count(const Scalar& s) { return s.type == Type::integer && s.integer >= 0; }

Scalar scalar_of(const json::Value& value) {
  Scalar s{.type = value.type()};
  if (value.is_number()) s.number = value.as_double();
  if (value.is_bool()) s.number = value.as_bool() ? 1 : 0;
  if (value.is_string()) s.text = value.as_string();
  return s;
}

// Positions of the members in step records of one shape.
struct Layout {
  struct Metric {
    std::size_t at;  // in the record
    std::string name;
    bool wanted;
  };
  std::size_t type = kNowhere, step = kNowhere, tokens = kNowhere, time = kNowhere;
  std::size_t precision = kNowhere, recipe = kNowhere, emulated = kNowhere;
  std::vector<Metric> metrics;  // members that may be metrics

  Layout() = default;
  Layout(const json::Object& record, const Wanted& wanted) {
    std::size_t at = 0;
    for (const auto& [key, value] : record) {
      if (key == "type") type = at;
      if (key == "step") step = at;
      if (key == "tokens") tokens = at;
      if (key == "time") time = at;
      if (key == "precision") precision = at;
      if (key == "recipe") recipe = at;
      if (key == "emulated") emulated = at;
      if (key != "step" && key != "tokens") metrics.push_back({at, key, wanted.has(key)});
      ++at;
    }
  }
};

class PieceReader {
 public:
  explicit PieceReader(const Wanted& wanted) : wanted_(wanted) {}

  // Reads one line; returns whether to continue.
  bool line(std::string_view text, bool whole) {
    ++piece_.lines;
    if (text.size() > kLongestLine) {
      fault(": longer than " + std::to_string(kLongestLine) + " bytes", false, false);
      return false;
    }
    if (shape_ && shape_->read(text, scalars_) && fast_step()) return true;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return true;
    const bool after_damage = !piece_.items.empty() && std::holds_alternative<Fault>(piece_.items.back());
    open_ = nullptr;
    std::optional<json::Value> value;
    try {
      value = json::parse(text, "", {.max_bytes = kLongestLine});
    } catch (const Error& e) {
      // The message is ": line 1 column C: reason"; the caller adds the real line number.
      const std::string message = e.what();
      value = glued_run(text);
      fault(message.substr(message.find(" column ")), true, !whole);
      if (!value) return !after_damage;
    }
    try {
      record(*value);
    } catch (const Error& e) {
      fault(std::string(": ") + e.what(), false, false);
      return false;
    }
    return true;
  }

  Piece take() { return std::move(piece_); }

 private:
  // A run record appended to an incomplete line: the writer was killed, and the next one continued the line.
  static std::optional<json::Value> glued_run(std::string_view text) {
    for (std::size_t at = text.find(R"({"type")", 1); at != std::string_view::npos;
         at = text.find(R"({"type")", at + 1)) {
      try {
        json::Value value = json::parse(text.substr(at), "", {.max_bytes = kLongestLine});
        if (value.is_object() && text_or_empty(value.as_object(), "type") == "run") return value;
      } catch (const Error&) {
        continue;  // the incomplete record, or a member of it
      }
    }
    return std::nullopt;
  }

  void fault(std::string reason, bool damaged, bool torn) {
    piece_.items.emplace_back(
        Fault{.line = piece_.lines, .reason = std::move(reason), .damaged = damaged, .torn = damaged && torn});
  }

  // Adds a scanned step; false when the line must be parsed.
  bool fast_step() {
    if (scalars_[layout_.type].type != Type::string || scalars_[layout_.type].text != "step") return false;
    if (!is_count(scalars_[layout_.step])) return false;
    const bool counted = layout_.tokens != kNowhere;
    if (counted && !is_count(scalars_[layout_.tokens])) return false;
    add(scalars_[layout_.step].integer, counted ? scalars_[layout_.tokens].integer : -1);
    return true;
  }

  void record(json::Value& value) {
    if (!value.is_object()) throw Error("expected an object, found " + std::string(json::type_name(value.type())));
    json::Object& object = value.as_object();
    if (text_or_empty(object, "type") != "step") {
      piece_.items.emplace_back(Event{.line = piece_.lines, .record = std::move(object)});
      return;
    }
    const std::int64_t step = needed_count(object, "step");
    const std::int64_t tokens = object.contains("tokens") ? needed_count(object, "tokens") : -1;
    layout_ = Layout(object, wanted_);
    scalars_.clear();
    for (const auto& [key, member] : object) scalars_.push_back(scalar_of(member));
    add(step, tokens);
    shape_ = json::Shape::of(object, [&](const std::string& key) { return wanted_.has(key); });
  }

  StepPrecision setting() const {
    StepPrecision s;
    s.has_precision = layout_.precision != kNowhere;
    s.has_emulated = layout_.emulated != kNowhere;
    if (s.has_precision) s.precision = scalars_[layout_.precision].text;
    if (layout_.recipe != kNowhere) s.recipe = scalars_[layout_.recipe].text;
    if (s.has_emulated && scalars_[layout_.emulated].type == Type::boolean) {
      s.emulated = scalars_[layout_.emulated].number != 0;
    }
    return s;
  }

  bool ran_alike() const {
    const StepPrecision& s = open_->setting;
    const auto text = [&](std::size_t at) { return at == kNowhere ? std::string_view() : scalars_[at].text; };
    if (text(layout_.precision) != s.precision || text(layout_.recipe) != s.recipe) return false;
    if (layout_.emulated == kNowhere) return true;
    const Scalar& emulated = scalars_[layout_.emulated];
    return (emulated.type == Type::boolean) == s.emulated.has_value() &&
           (!s.emulated || *s.emulated == (emulated.number != 0));
  }

  // Whether the record in scalars_ can be appended to the open block.
  bool fits(std::int64_t step) const {
    if (open_ == nullptr || step <= open_->steps.back() || !ran_alike()) return false;
    for (std::size_t i = 0; i < layout_.metrics.size(); ++i) {
      if (fields_[i] == kNowhere && number_like(scalars_[layout_.metrics[i].at])) return false;
    }
    return true;
  }

  void open_block() {
    open_ = &std::get<StepBlock>(piece_.items.emplace_back(StepBlock{.line = piece_.lines, .setting = setting()}));
    fields_.assign(layout_.metrics.size(), kNowhere);
    for (std::size_t i = 0; i < layout_.metrics.size(); ++i) {
      const Layout::Metric& place = layout_.metrics[i];
      if (!number_like(scalars_[place.at])) continue;
      fields_[i] = open_->fields.size();
      open_->fields.push_back({.name = place.name, .wanted = place.wanted});
    }
  }

  // Makes a number of the time of the record: seconds since 1970 in UTC.
  void read_time() {
    if (layout_.time == kNowhere || scalars_[layout_.time].type != Type::string) return;
    const std::optional<double> seconds = parse_utc(scalars_[layout_.time].text);
    if (seconds) scalars_[layout_.time] = {.type = Type::real, .number = *seconds};
  }

  void add(std::int64_t step, std::int64_t tokens) {
    read_time();
    if (!fits(step)) open_block();
    open_->steps.push_back(step);
    open_->tokens.push_back(tokens);
    for (std::size_t i = 0; i < layout_.metrics.size(); ++i) {
      const Layout::Metric& place = layout_.metrics[i];
      if (!place.wanted || fields_[i] == kNowhere) continue;
      const Scalar& s = scalars_[place.at];
      open_->fields[fields_[i]].values.push_back(number_like(s) ? measured(s.number) : kNan);
    }
  }

  const Wanted& wanted_;
  Piece piece_;
  std::optional<json::Shape> shape_;  // shape of the last step record; layout_ is its layout
  Layout layout_;
  std::vector<Scalar> scalars_;      // members of the current record
  StepBlock* open_ = nullptr;        // the last item, when steps can be appended to it
  std::vector<std::size_t> fields_;  // index of the field in the open block, by place
};

}  // namespace

std::int64_t needed_count(const json::Object& record, std::string_view key) {
  const json::Value* value = record.find(key);
  if (value == nullptr) throw Error("\"" + std::string(key) + "\" is missing");
  if (!value->is_int() || value->as_double() < 0) throw Error("\"" + std::string(key) + "\" is not a count");
  return value->as_int();
}

std::string text_or_empty(const json::Object& record, std::string_view key) {
  const json::Value* value = record.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

std::optional<bool> boolean(const json::Object& record, std::string_view key) {
  const json::Value* value = record.find(key);
  if (value == nullptr || !value->is_bool()) return std::nullopt;
  return value->as_bool();
}

bool Wanted::has(std::string_view metric) const {
  return all || std::find(metrics.begin(), metrics.end(), metric) != metrics.end();
}

Piece read_piece(std::string_view text, const Wanted& wanted) {
  PieceReader reader(wanted);
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const bool whole = newline != std::string_view::npos;
    if (!reader.line(text.substr(0, newline), whole)) break;
    text.remove_prefix(whole ? newline + 1 : text.size());
  }
  return reader.take();
}

}  // namespace fp8::log
