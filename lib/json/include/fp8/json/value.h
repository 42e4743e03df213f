/// A JSON value in memory. Objects keep the order in which members were set; integers and floats are distinct.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fp8::json {

class Value;
struct Member;

/// Type of a Value.
enum class Type : std::uint8_t { null, boolean, integer, real, string, array, object };

/// "null", "boolean", "integer", "number", "string", "array", "object".
std::string_view type_name(Type type);

/// An array of values.
using Array = std::vector<Value>;

/// Members in the order in which they were first set, with unique keys. Lookup takes logarithmic time. The getters with
/// `what` throw Error `what: "key" ...` when the member is missing or of another type; `what` is the file or thing that
/// the object came from.
class Object {
 public:
  /// An object without members.
  Object();
  ~Object();
  Object(const Object&);
  Object(Object&&) noexcept;
  Object& operator=(const Object&);
  Object& operator=(Object&&) noexcept;

  /// Adopts members in order. Throws Error `duplicate key "..."` when two have the same key.
  static Object from_members(std::vector<Member> members);

  /// The value under `key`, or nullptr. Valid until the object changes.
  const Value* find(std::string_view key) const;
  /// The value under `key`, or nullptr. Valid until the object changes.
  Value* find(std::string_view key);
  /// Whether there is a member `key`.
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// The value under `key`; throws Error when there is none.
  const Value& at(std::string_view key) const;
  /// Sets `key` to `value`, in place when it exists, else as the last member.
  Value& set(std::string_view key, Value value);
  /// The value under `key`; a missing member is appended as null.
  Value& operator[](std::string_view key);
  /// Removes `key`; returns whether it existed.
  bool erase(std::string_view key);

  /// Number of members.
  std::size_t size() const;
  /// Whether the object has no members.
  bool empty() const { return size() == 0; }
  /// Members in order: `for (const auto& [key, value] : object)`.
  const Member* begin() const;
  /// One past the last member.
  const Member* end() const;

  /// Required integer member.
  std::int64_t get_int(std::string_view key, const std::string& what) const;
  /// Required number member (integer or float).
  double get_double(std::string_view key, const std::string& what) const;
  /// Required boolean member.
  bool get_bool(std::string_view key, const std::string& what) const;
  /// Required string member. Valid until the object changes.
  const std::string& get_string(std::string_view key, const std::string& what) const;
  /// Required array member. Valid until the object changes.
  const Array& get_array(std::string_view key, const std::string& what) const;
  /// Required object member. Valid until the object changes.
  const Object& get_object(std::string_view key, const std::string& what) const;

  /// Integer member, or `fallback` when it is missing or null; another type is an error.
  std::int64_t get_int_or(std::string_view key, std::int64_t fallback, const std::string& what) const;
  /// Number member, or `fallback` when it is missing or null; another type is an error.
  double get_double_or(std::string_view key, double fallback, const std::string& what) const;
  /// Boolean member, or `fallback` when it is missing or null; another type is an error.
  bool get_bool_or(std::string_view key, bool fallback, const std::string& what) const;
  /// String member, or `fallback` when it is missing or null; another type is an error.
  std::string get_string_or(std::string_view key, std::string_view fallback, const std::string& what) const;

  /// Same members, in any order.
  bool operator==(const Object& other) const;

 private:
  std::size_t position(std::string_view key) const;
  void build_index();
  std::vector<Member> members_;
  std::vector<std::uint32_t> index_;  // positions sorted by key; empty while there are few members
};

/// One JSON value. A value type: copies are deep.
class Value {
 public:
  // NOLINTBEGIN(google-explicit-constructor): literals convert to Value implicitly
  /// null
  Value() noexcept;
  /// null
  Value(std::nullptr_t) noexcept;
  /// boolean; not from pointers
  template <std::same_as<bool> T>
  Value(T value) : Value(Boolean{value}) {}
  /// integer of any width
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T value)
      : Value(Whole{static_cast<std::uint64_t>(value), std::in_range<std::int64_t>(value)}) {}
  /// float, upcast to double; reads back to the same bits
  Value(float value) : Value(static_cast<double>(value)) {}
  /// float
  Value(double value);
  /// string, which must be UTF-8 (dump() replaces invalid bytes)
  Value(std::string value);
  /// string, which must be UTF-8
  Value(std::string_view value);
  /// string, which must be UTF-8
  Value(const char* value);
  /// array
  Value(Array value);
  /// object
  Value(Object value);
  // NOLINTEND(google-explicit-constructor)
  ~Value();
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;

  /// Type of the value.
  Type type() const;
  /// Whether it is null.
  bool is_null() const { return type() == Type::null; }
  /// Whether it is true or false.
  bool is_bool() const { return type() == Type::boolean; }
  /// Whether it was written as an integer (3, not 3.0).
  bool is_int() const { return type() == Type::integer; }
  /// Whether it is an integer or a float.
  bool is_number() const { return is_int() || type() == Type::real; }
  /// Whether it is a string.
  bool is_string() const { return type() == Type::string; }
  /// Whether it is an array.
  bool is_array() const { return type() == Type::array; }
  /// Whether it is an object.
  bool is_object() const { return type() == Type::object; }

  // The accessors throw Error `expected X, found Y` for another type.
  /// The boolean.
  bool as_bool() const;
  /// The integer; throws when it is a float or above the range of int64.
  std::int64_t as_int() const;
  /// The integer; throws when it is a float or negative.
  std::uint64_t as_uint() const;
  /// The number, an integer rounded to nearest.
  double as_double() const;
  /// The string.
  const std::string& as_string() const;
  /// The array.
  const Array& as_array() const;
  /// The array.
  Array& as_array();
  /// The object.
  const Object& as_object() const;
  /// The object.
  Object& as_object();

  /// Same type and value; 3 and 3.0 differ, the order of members does not matter.
  bool operator==(const Value& other) const;

 private:
  // uint64 only above the range of int64, so that each number has one representation.
  using Data = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object>;
  struct Boolean {
    bool value;
  };
  struct Whole {
    std::uint64_t bits;  // in two's complement if `in_range`
    bool in_range;       // of int64
  };
  // Code of the variant is in value.cc alone: others compile faster.
  explicit Value(Boolean value);
  explicit Value(Whole value);
  Data data_;
};

/// A member of an object.
struct Member {
  std::string key;  ///< unique in its object
  Value value;      ///< its value

  /// Same key and value.
  bool operator==(const Member&) const = default;
};

/// An object from a list of members: `object({{"type", "eval"}, {"loss", 2.5}})`. The last of duplicate keys wins.
Value object(std::initializer_list<Member> members);

}  // namespace fp8::json
