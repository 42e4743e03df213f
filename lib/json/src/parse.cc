// The strict parser: nlohmann's tokenizer and grammar (which do not recurse) feed a builder that limits the depth and
// rejects duplicate keys. The only file that includes nlohmann.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "parse_at.h"

namespace fp8::json {
namespace {

// The reason for rejecting the text, and its byte offset.
struct Refused {
  std::size_t offset;
  std::string reason;
};

// An iterator that publishes its position to the builder.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, const char** shared) : at_(at), shared_(shared) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *shared_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** shared_;
};

// The library's message is "[json.exception...] parse error at line 1, column 2: <what> - <reason>; last read: '...'";
// only the reason is shown, since the last token may be of any length.
std::string reason_of(const std::string& message) {
  if (message.find("number overflow") != std::string::npos) return "number out of range";
  const std::size_t dash = message.find(" - ");
  std::string reason = dash == std::string::npos ? message : message.substr(dash + 3);
  const std::size_t last_read = reason.find("; last read: ");
  if (last_read != std::string::npos) {
    const std::size_t expected = reason.rfind("; expected ");
    const std::string tail = expected != std::string::npos && expected > last_read ? reason.substr(expected) : "";
    reason = reason.substr(0, last_read) + tail;
  }
  constexpr std::size_t kLongest = 200;
  return reason.substr(0, kLongest);
}

// Receives the parser's events and builds the value.
class Builder {
 public:
  using number_integer_t = std::int64_t;
  using number_unsigned_t = std::uint64_t;
  using number_float_t = double;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  Builder(const char* begin, const char* const& at, int max_depth) : begin_(begin), at_(at), max_depth_(max_depth) {}

  bool null() { return add(nullptr); }
  bool boolean(bool v) { return add(v); }
  bool number_integer(std::int64_t v) { return add(v); }
  bool number_unsigned(std::uint64_t v) { return add(v); }
  bool number_float(double v, const std::string& /*text*/) { return add(v); }
  bool string(std::string& v) { return add(std::move(v)); }
  bool binary(binary_t& /*v*/) { return false; }
  bool start_object(std::size_t /*size*/) { return open(true); }
  bool start_array(std::size_t /*size*/) { return open(false); }

  bool key(std::string& k) {
    frames_.back().key = std::move(k);
    return true;
  }

  bool end_array() {
    Array items = std::move(frames_.back().items);
    frames_.pop_back();
    return add(std::move(items));
  }

  bool end_object() {
    std::vector<Member> members = std::move(frames_.back().members);
    frames_.pop_back();
    try {
      return add(Object::from_members(std::move(members)));
    } catch (const Error& e) {
      throw Refused{here(), std::string(e.what()).substr(0, 200) + " in the object that ends here"};
    }
  }

  bool parse_error(std::size_t position, const std::string& /*last*/, const nlohmann::detail::exception& e) {
    throw Refused{position > 0 ? position - 1 : 0, reason_of(e.what())};
  }

  Value take() { return std::move(root_); }

 private:
  struct Frame {
    std::string key;
    Array items;
    std::vector<Member> members;
    bool is_object = false;
  };

  std::size_t here() const { return static_cast<std::size_t>(std::max<std::ptrdiff_t>(at_ - begin_ - 1, 0)); }

  bool open(bool is_object) {
    if (frames_.size() >= static_cast<std::size_t>(max_depth_)) {
      throw Refused{here(), "nested deeper than " + std::to_string(max_depth_) + " levels"};
    }
    frames_.emplace_back();
    frames_.back().is_object = is_object;
    return true;
  }

  bool add(Value value) {
    if (frames_.empty()) {
      root_ = std::move(value);
    } else if (frames_.back().is_object) {
      frames_.back().members.push_back({std::move(frames_.back().key), std::move(value)});
    } else {
      frames_.back().items.push_back(std::move(value));
    }
    return true;
  }

  const char* begin_;
  const char* const& at_;
  int max_depth_;
  std::vector<Frame> frames_;
  Value root_;
};

Value parse_or_refuse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.max_bytes) {
    throw Refused{0, "longer than " + std::to_string(limits.max_bytes) + " bytes"};
  }
  if (text.starts_with("\xEF\xBB\xBF")) throw Refused{0, "byte order mark"};
  // The library treats NUL as the end of its input.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) throw Refused{nul, "NUL byte"};
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) throw Refused{0, "empty"};
  const char* at = text.data();
  Builder builder(text.data(), at, limits.max_depth);
  const char* end = text.data() + text.size();
  if (!nlohmann::json::sax_parse(Cursor(text.data(), &at), Cursor(end, &at), &builder)) throw Refused{0, "not JSON"};
  return builder.take();
}

}  // namespace

Value parse_at(std::string_view text, const std::string& name, std::uint64_t first_line, const Limits& limits) {
  try {
    return parse_or_refuse(text, limits);
  } catch (const Refused& r) {
    const std::string_view before = text.substr(0, r.offset);
    const std::uint64_t line = first_line + static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t newline = before.rfind('\n');
    const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    throw Error(name + ": line " + std::to_string(line) + " column " + std::to_string(column) + ": " + r.reason);
  }
}

Value parse(std::string_view text, const std::string& name, const Limits& limits) {
  return parse_at(text, name, 1, limits);
}

Value parse_file(const std::string& path, const Limits& limits) {
  return parse(read_text_file(path, limits.max_bytes), path, limits);
}

Value parse_object_file(const std::string& path, const std::string& what, const Limits& limits) {
  const std::string text = read_text_file(path, limits.max_bytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] != '{') {
    const std::string_view line = std::string_view(text).substr(first, text.find('\n', first) - first);
    const bool yaml = path.ends_with(".yaml") || path.ends_with(".yml") || line.find(':') != std::string_view::npos;
    throw Error(path + ": " + what + " is a JSON object, which begins with {, and this file with " +
                terminal_safe(excerpt(line, 40)) + (yaml ? "; YAML is not read" : ""));
  }
  return parse(text, path, limits);
}

}  // namespace fp8::json
