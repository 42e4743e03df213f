// Values and objects. Lookup in large objects is a binary search over positions sorted by key: without a hash table, no
// input can make lookup slow.
#include "fp8/json/value.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::json {
namespace {

constexpr std::size_t kLinearMembers = 16;  // up to this size a linear scan is faster

std::string quoted_key(std::string_view key) { return "\"" + excerpt(key) + "\""; }

[[noreturn]] void throw_type(std::string_view expected, Type found) {
  throw Error("expected " + std::string(expected) + ", found " + std::string(type_name(found)));
}

// Returns the member `key` through `get`; errors begin with `what` and the key.
template <typename Get>
decltype(auto) named(const Object& object, std::string_view key, const std::string& what, Get get) {
  const Value* value = object.find(key);
  if (value == nullptr) throw Error(what + ": " + quoted_key(key) + " is missing");
  try {
    return get(*value);
  } catch (const Error& e) {
    throw Error(what + ": " + quoted_key(key) + ": " + e.what());
  }
}

// Whether the member exists and is not null.
bool present(const Object& object, std::string_view key) {
  const Value* value = object.find(key);
  return value != nullptr && !value->is_null();
}

}  // namespace

std::string_view type_name(Type type) {
  constexpr std::array<std::string_view, 7> kNames = {"null",   "boolean", "integer", "number",
                                                      "string", "array",   "object"};
  return kNames.at(static_cast<std::size_t>(type));
}

Object::Object() = default;
Object::~Object() = default;
Object::Object(const Object&) = default;
Object::Object(Object&&) noexcept = default;
Object& Object::operator=(const Object&) = default;
Object& Object::operator=(Object&&) noexcept = default;

Object Object::from_members(std::vector<Member> members) {
  Object object;
  object.members_ = std::move(members);
  const auto refuse = [](const Member& m) { throw Error("duplicate key " + quoted_key(m.key)); };
  if (object.members_.size() > kLinearMembers) {
    object.build_index();
    const auto same = [&](std::uint32_t a, std::uint32_t b) {
      return object.members_[a].key == object.members_[b].key;
    };
    const auto twice = std::adjacent_find(object.index_.begin(), object.index_.end(), same);
    if (twice != object.index_.end()) refuse(object.members_[*twice]);
  } else {
    for (std::size_t i = 0; i < object.members_.size(); ++i) {
      if (object.position(object.members_[i].key) != i) refuse(object.members_[i]);
    }
  }
  return object;
}

void Object::build_index() {
  index_.resize(checked_cast<std::uint32_t>(members_.size(), "JSON object"));
  std::iota(index_.begin(), index_.end(), 0U);
  std::sort(index_.begin(), index_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return members_[a].key < members_[b].key; });
}

std::size_t Object::position(std::string_view key) const {
  if (index_.empty()) {
    const auto at = std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.key == key; });
    return static_cast<std::size_t>(at - members_.begin());
  }
  const auto at = std::lower_bound(index_.begin(), index_.end(), key,
                                   [&](std::uint32_t i, std::string_view k) { return members_[i].key < k; });
  return at != index_.end() && members_[*at].key == key ? *at : members_.size();
}

const Value* Object::find(std::string_view key) const {
  const std::size_t i = position(key);
  return i < members_.size() ? &members_[i].value : nullptr;
}

Value* Object::find(std::string_view key) {
  const std::size_t i = position(key);
  return i < members_.size() ? &members_[i].value : nullptr;
}

const Value& Object::at(std::string_view key) const {
  if (const Value* value = find(key)) return *value;
  throw Error(quoted_key(key) + " is missing");
}

Value& Object::set(std::string_view key, Value value) {
  Value& place = (*this)[key];
  place = std::move(value);
  return place;
}

Value& Object::operator[](std::string_view key) {
  if (Value* value = find(key)) return *value;
  const auto i = checked_cast<std::uint32_t>(members_.size(), "JSON object");
  members_.push_back({std::string(key), Value()});
  if (!index_.empty()) {
    const auto at = std::lower_bound(index_.begin(), index_.end(), key,
                                     [&](std::uint32_t j, std::string_view k) { return members_[j].key < k; });
    index_.insert(at, i);
  } else if (members_.size() > kLinearMembers) {
    build_index();
  }
  return members_.back().value;
}

bool Object::erase(std::string_view key) {
  const std::size_t i = position(key);
  if (i == members_.size()) return false;
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(i));
  index_.clear();
  if (members_.size() > kLinearMembers) build_index();
  return true;
}

std::size_t Object::size() const { return members_.size(); }
const Member* Object::begin() const { return members_.data(); }
const Member* Object::end() const { return members_.data() + members_.size(); }

std::int64_t Object::get_int(std::string_view key, const std::string& what) const {
  return named(*this, key, what, [](const Value& v) { return v.as_int(); });
}
double Object::get_double(std::string_view key, const std::string& what) const {
  return named(*this, key, what, [](const Value& v) { return v.as_double(); });
}
bool Object::get_bool(std::string_view key, const std::string& what) const {
  return named(*this, key, what, [](const Value& v) { return v.as_bool(); });
}
const std::string& Object::get_string(std::string_view key, const std::string& what) const {
  return named(*this, key, what, [](const Value& v) -> const std::string& { return v.as_string(); });
}
const Array& Object::get_array(std::string_view key, const std::string& what) const {
  return named(*this, key, what, [](const Value& v) -> const Array& { return v.as_array(); });
}
const Object& Object::get_object(std::string_view key, const std::string& what) const {
  return named(*this, key, what, [](const Value& v) -> const Object& { return v.as_object(); });
}

std::int64_t Object::get_int_or(std::string_view key, std::int64_t fallback, const std::string& what) const {
  return present(*this, key) ? get_int(key, what) : fallback;
}
double Object::get_double_or(std::string_view key, double fallback, const std::string& what) const {
  return present(*this, key) ? get_double(key, what) : fallback;
}
bool Object::get_bool_or(std::string_view key, bool fallback, const std::string& what) const {
  return present(*this, key) ? get_bool(key, what) : fallback;
}
std::string Object::get_string_or(std::string_view key, std::string_view fallback, const std::string& what) const {
  return present(*this, key) ? get_string(key, what) : std::string(fallback);
}

bool Object::operator==(const Object& other) const {
  return size() == other.size() && std::all_of(begin(), end(), [&](const Member& m) {
           const Value* value = other.find(m.key);
           return value != nullptr && *value == m.value;
         });
}

Value::Value() noexcept : data_(nullptr) {}
Value::Value(std::nullptr_t) noexcept : data_(nullptr) {}
Value::Value(Boolean value) : data_(value.value) {}
Value::Value(Whole value) : data_(value.bits) {
  if (value.in_range) data_ = static_cast<std::int64_t>(value.bits);
}
Value::Value(double value) : data_(value) {}
Value::Value(std::string value) : data_(std::move(value)) {}
Value::Value(std::string_view value) : data_(std::string(value)) {}
Value::Value(const char* value) : data_(std::string(value)) {}
Value::Value(Array value) : data_(std::move(value)) {}
Value::Value(Object value) : data_(std::move(value)) {}
Value::~Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;

Type Value::type() const {
  constexpr std::array<Type, 8> kTypes = {Type::null, Type::boolean, Type::integer, Type::integer,
                                          Type::real, Type::string,  Type::array,   Type::object};
  return kTypes.at(data_.index());
}

bool Value::as_bool() const {
  if (const bool* v = std::get_if<bool>(&data_)) return *v;
  throw_type("a boolean", type());
}

std::int64_t Value::as_int() const {
  if (const std::int64_t* v = std::get_if<std::int64_t>(&data_)) return *v;
  if (std::holds_alternative<std::uint64_t>(data_)) throw Error("integer out of range");
  throw_type("an integer", type());
}

std::uint64_t Value::as_uint() const {
  if (const std::uint64_t* v = std::get_if<std::uint64_t>(&data_)) return *v;
  const std::int64_t v = as_int();
  if (v < 0) throw Error("expected an integer that is not negative, found " + std::to_string(v));
  return static_cast<std::uint64_t>(v);
}

double Value::as_double() const {
  if (const double* v = std::get_if<double>(&data_)) return *v;
  if (const std::int64_t* v = std::get_if<std::int64_t>(&data_)) return static_cast<double>(*v);
  if (const std::uint64_t* v = std::get_if<std::uint64_t>(&data_)) return static_cast<double>(*v);
  throw_type("a number", type());
}

const std::string& Value::as_string() const {
  if (const std::string* v = std::get_if<std::string>(&data_)) return *v;
  throw_type("a string", type());
}

const Array& Value::as_array() const {
  if (const Array* v = std::get_if<Array>(&data_)) return *v;
  throw_type("an array", type());
}

Array& Value::as_array() {
  if (Array* v = std::get_if<Array>(&data_)) return *v;
  throw_type("an array", type());
}

const Object& Value::as_object() const {
  if (const Object* v = std::get_if<Object>(&data_)) return *v;
  throw_type("an object", type());
}

Object& Value::as_object() {
  if (Object* v = std::get_if<Object>(&data_)) return *v;
  throw_type("an object", type());
}

bool Value::operator==(const Value& other) const { return data_ == other.data_; }

Value object(std::initializer_list<Member> members) {
  Object object;
  for (const Member& m : members) object.set(m.key, m.value);
  return object;
}

}  // namespace fp8::json
