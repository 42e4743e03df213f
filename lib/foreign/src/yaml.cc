// YAML, by the events of yaml-cpp's parser: a document is built here, because yaml-cpp's own nodes share what aliases
// name, so that a cycle or an expansion could not be bounded, and keep only one of two equal keys.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "builder.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::foreign {
namespace {

constexpr std::string_view kTag = "tag:yaml.org,2002:";

// A number in the notation of Python: underscores between digits are left out.
std::string without_underscores(const std::string& text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_' || i == 0 || i + 1 == text.size()) digits += text[i];
  return digits;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Builds the document. Each map and sequence that is open has a frame.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(Document& document) : document_(document), budget_(document.path) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    put_scalar(nullptr, "", line_of(mark), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const int line = line_of(mark);
    if (tag == "?" || tag.empty()) return put_scalar(scalar_value(value), value, line, anchor);
    if (tag == "!" || tag == std::string(kTag) + "str") return put_scalar(value, value, line, anchor);
    for (const char* known : {"int", "float", "bool", "null"})
      if (tag == std::string(kTag) + known) return put_scalar(scalar_value(value), value, line, anchor);
    refuse_tag(tag, line);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(json::Array(), "seq", tag, line_of(mark), anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(json::Object(), "map", tag, line_of(mark), anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const int line = line_of(mark);
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end())
      refuse_line(document_.path, line, "an alias inside of what it names, which would have no end");
    json::Value value = known->second;
    budget_.add(value, line);
    if (wants_key()) {
      if (!value.is_string()) refuse_line(document_.path, line, "a key that is no text");
      return take_key(value.as_string(), line);
    }
    put(std::move(value), line);
  }

 private:
  struct Frame {
    json::Value value;  // an array or an object
    YAML::anchor_t anchor = 0;
    std::string path;
    int line = 0;
    std::optional<std::string> key{};  // of an object, between the key and its value
    int key_line = 0;
    std::set<std::string, std::less<>> keys{};  // that the map itself has, without those that are merged
  };

  static int line_of(const YAML::Mark& mark) { return mark.line + 1; }

  bool wants_key() const { return !frames_.empty() && frames_.back().value.is_object() && !frames_.back().key; }

  [[noreturn]] void refuse_tag(const std::string& tag, int line) const {
    refuse_line(document_.path, line, "tag " + excerpt(tag) + ", which stands for an object of a program");
  }

  void take_key(const std::string& key, int line) {
    Frame& frame = frames_.back();
    if (key != "<<" && !frame.keys.insert(key).second)
      refuse_line(document_.path, line, "\"" + excerpt(key) + "\" is there twice");
    frame.key = key;
    frame.key_line = line;
  }

  // The path of the value that is read next.
  std::string next_path() const {
    if (frames_.empty()) return "";
    const Frame& frame = frames_.back();
    if (frame.value.is_array()) return element_path(frame.path, frame.value.as_array().size());
    return *frame.key == "<<" ? frame.path : member_path(frame.path, *frame.key);
  }

  void put_scalar(json::Value value, const std::string& text, int line, YAML::anchor_t anchor) {
    budget_.add(value, line);
    if (wants_key()) {
      if (anchor != 0) anchors_[anchor] = text;
      return take_key(value.is_null() && text.empty() ? "null" : text, line);
    }
    if (anchor != 0) anchors_[anchor] = value;
    put(std::move(value), line);
  }

  void open(json::Value value, const std::string& kind, const std::string& tag, int line, YAML::anchor_t anchor) {
    if (tag != "?" && tag != "!" && !tag.empty() && tag != std::string(kTag) + kind) refuse_tag(tag, line);
    if (wants_key()) refuse_line(document_.path, line, "a key that is no text");
    if (frames_.size() >= kMostLevels)
      refuse_line(document_.path, line, "more than " + std::to_string(kMostLevels) + " levels");
    budget_.add(value, line);
    frames_.push_back({std::move(value), anchor, next_path(), line});
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    if (frame.anchor != 0) {
      budget_.add(frame.value, frame.line);
      anchors_[frame.anchor] = frame.value;
    }
    put(std::move(frame.value), frame.line);
  }

  // Adds a value to the frame that is open.
  void put(json::Value value, int line) {
    if (frames_.empty()) {
      document_.root = std::move(value);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.value.is_array()) {
      note_line(element_path(frame.path, frame.value.as_array().size()), line);
      frame.value.as_array().push_back(std::move(value));
      return;
    }
    const std::string key = std::exchange(frame.key, std::nullopt).value_or("");
    if (key == "<<") return merge(frame, value, line);
    note_line(member_path(frame.path, key), frame.key_line);
    frame.value.as_object().set(key, std::move(value));
  }

  // Keys inside of an alias have no line.
  void note_line(const std::string& path, int line) {
    budget_.add(nullptr, line, path.size());
    document_.line.insert_or_assign(path, line);
  }

  // Members of merged maps, but for keys that the map itself has. The first of several maps wins.
  void merge(Frame& frame, const json::Value& value, int line) {
    if (value.is_array()) {
      for (const json::Value& one : value.as_array()) merge(frame, one, line);
      return;
    }
    if (!value.is_object())
      refuse_line(document_.path, line, "<< merges maps, found " + std::string(json::type_name(value.type())));
    for (const auto& [key, member] : value.as_object()) {
      if (frame.value.as_object().contains(key)) continue;
      note_line(member_path(frame.path, key), line);
      frame.value.as_object().set(key, member);
    }
  }

  Document& document_;
  Budget budget_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, json::Value> anchors_;  // nodes that are complete
};

}  // namespace

json::Value scalar_value(const std::string& text) {
  for (const char* null : {"", "~", "null", "Null", "NULL"})
    if (text == null) return nullptr;
  for (const char* on : {"true", "True", "TRUE"})
    if (text == on) return true;
  for (const char* off : {"false", "False", "FALSE"})
    if (text == off) return false;
  std::string number = without_underscores(text);
  if (number.starts_with('+')) number.erase(0, 1);
  const std::size_t first = number.starts_with('-') ? 1 : 0;
  const std::size_t digit = first + (number.size() > first && number[first] == '.' ? 1 : 0);
  if (digit >= number.size() || !is_digit(number[digit])) return text;
  const bool octal = number.size() > first + 1 && number[first] == '0' && is_digit(number[first + 1]);
  if (!octal)
    if (const auto whole = parse_int64(number)) return *whole;
  if (number[first] == '.') number.insert(first, 1, '0');
  if (const auto real = parse_double(number); real && !octal) return *real;
  return text;
}

void parse_yaml(std::string_view text, Document& document) {
  // yaml-cpp 0.7 refuses a quoted text that is not closed only if the file ends within a line that is not blank.
  const bool blank = text.find_last_not_of(" \t\r\n") != text.size() - 1;
  std::istringstream stream{std::string(text) + (!blank ? "" : text.ends_with('\n') ? "#" : "\n#")};
  Builder builder(document);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return;
    Document other{document.path, nullptr, {}};
    Builder rest(other);
    if (parser.HandleNextDocument(rest)) throw Error(document.path + ": more than one document");
  } catch (const YAML::Exception& e) {
    const bool open = e.msg == YAML::ErrorMsg::EOF_IN_SCALAR;
    refuse_line(document.path, e.mark.is_null() ? 0 : e.mark.line + 1,
                open ? "the file ends inside of a quoted text" : e.msg);
  }
}

}  // namespace fp8::foreign
