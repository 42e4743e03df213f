// Writing JSON.
#include <cmath>

#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::json {
namespace {

void write_control(unsigned char c, std::string& out) {
  constexpr std::string_view kLetters = "btn?fr";  // 8 to 13
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  if (c >= 8 && c <= 13 && c != 11) {
    out += {'\\', kLetters[c - 8U]};
  } else {
    out += {'\\', 'u', '0', '0', kHexDigits[c >> 4U], kHexDigits[c & 15U]};
  }
}

// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string repaired(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::size_t length = 1;
    while (length <= 4 && length <= text.size() && !valid_utf8(text.substr(0, length))) ++length;
    if (length <= 4 && length <= text.size()) {
      out += text.substr(0, length);
    } else {
      out += "\xEF\xBF\xBD";
      length = 1;
    }
    text.remove_prefix(length);
  }
  return out;
}

// Control characters are escaped, those of C1 (U+0080 to U+009F) too: a terminal that shows the JSON obeys them. U+2028
// and U+2029 are escaped because readers that divide JSON Lines as Unicode text, as Python's splitlines(), end lines
// there.
void write_string(std::string_view text, std::string& out) {
  if (!valid_utf8(text)) return write_string(repaired(text), out);
  out += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    if (byte(i) < 0x20 || byte(i) == 0x7F) {
      write_control(byte(i), out);
    } else if (byte(i) == 0xC2 && byte(i + 1) < 0xA0) {  // valid UTF-8: a second byte follows
      write_control(byte(++i), out);
    } else if (byte(i) == 0xE2 && byte(i + 1) == 0x80 && (byte(i + 2) & 0xFEU) == 0xA8) {
      out += byte(i + 2) == 0xA8 ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      if (text[i] == '"' || text[i] == '\\') out += '\\';
      out += text[i];
    }
  }
  out += '"';
}

void write_real(double v, std::string& out) {
  if (!std::isfinite(v)) {
    out += "null";
    return;
  }
  const std::string digits = format_double(v);
  out += digits;
  if (digits.find_first_of(".e") == std::string::npos) out += ".0";
}

class Writer {
 public:
  Writer(int indent, std::string& out) : indent_(indent), out_(out) {}

  void write(const Value& value) {
    switch (value.type()) {
      case Type::null:
        out_ += "null";
        break;
      case Type::boolean:
        out_ += value.as_bool() ? "true" : "false";
        break;
      case Type::integer:
        out_ += value.as_double() < 0 ? std::to_string(value.as_int()) : std::to_string(value.as_uint());
        break;
      case Type::real:
        write_real(value.as_double(), out_);
        break;
      case Type::string:
        write_string(value.as_string(), out_);
        break;
      case Type::array:
        write_items('[', value.as_array(), ']', [&](const Value& v) { write(v); });
        break;
      case Type::object:
        write_items('{', value.as_object(), '}', [&](const Member& m) {
          write_string(m.key, out_);
          out_ += indent_ < 0 ? ":" : ": ";
          write(m.value);
        });
        break;
    }
  }

 private:
  void new_line() {
    if (indent_ >= 0) out_ += '\n' + std::string(static_cast<std::size_t>(indent_) * level_, ' ');
  }

  template <typename Items, typename Each>
  void write_items(char open, const Items& items, char close, Each each) {
    out_ += open;
    ++level_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ',';
      first = false;
      new_line();
      each(item);
    }
    --level_;
    if (!first) new_line();
    out_ += close;
  }

  int indent_;
  std::string& out_;
  std::size_t level_ = 0;
};

}  // namespace

std::string dump(const Value& value, int indent) {
  std::string out;
  Writer(indent, out).write(value);
  return out;
}

}  // namespace fp8::json
