// Files of operations, and the sums.
#include "ccl_exchange.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace fp8::ccl {
namespace {

std::string text_of(const Call& c) {
  constexpr const char* kNames[] = {"all-reduce", "all-gather", "reduce-scatter", "broadcast",
                                    "reduce",     "send",       "receive"};
  std::ostringstream text;
  text << kNames[static_cast<std::size_t>(c.kind)] << " of " << c.count << " elements of type " << c.type
       << ", operation " << c.op << ", root " << c.root;
  return text.str();
}

Call call_in(const std::string& content) {
  Call c{};
  std::memcpy(&c, content.data(), sizeof c);
  return c;
}

// Elements that a rank contributes.
std::uint64_t contributed(const Call& c, int size) {
  return c.kind == Kind::reduce_scatter ? c.count * static_cast<std::uint64_t>(size) : c.count;
}

template <class T>
T combined(T a, T b, ncclRedOp_t op) {
  return op == ncclMax ? std::max(a, b) : op == ncclMin ? std::min(a, b) : static_cast<T>(a + b);
}

// Elements [begin, end) of the reduction, in the order of a ring that ends at rank `last`.
template <class T>
void reduce_part(const std::vector<std::string>& contents, ncclRedOp_t op, std::uint64_t begin, std::uint64_t end,
                 std::size_t last, void* to) {
  const std::size_t size = contents.size();
  const auto at = [&](std::size_t rank, std::uint64_t i) {
    T v{};
    std::memcpy(&v, contents[rank].data() + sizeof(Call) + i * sizeof(T), sizeof v);
    return v;
  };
  for (std::uint64_t i = begin; i < end; ++i) {
    T v = at((last + 1) % size, i);
    for (std::size_t r = 2; r <= size; ++r) v = combined(v, at((last + r) % size, i), op);
    std::memcpy(static_cast<std::byte*>(to) + (i - begin) * sizeof(T), &v, sizeof v);
  }
}

void reduce(const std::vector<std::string>& contents, const Call& c, std::uint64_t begin, std::uint64_t end,
            std::size_t last, void* to) {
  if (c.type == ncclFloat32)
    reduce_part<float>(contents, c.op, begin, end, last, to);
  else if (c.type == ncclFloat64)
    reduce_part<double>(contents, c.op, begin, end, last, to);
  else
    reduce_part<std::int32_t>(contents, c.op, begin, end, last, to);
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  return type == ncclUint8 ? 1 : type == ncclFloat64 ? 8 : type == ncclFloat32 || type == ncclInt32 ? 4 : 0;
}

void publish(const std::string& path, const std::string& content) {
  const std::string part = path + ".part";
  {
    std::ofstream out(part, std::ios::binary);
    out << content;
    if (!out.flush()) throw std::runtime_error(part + ": cannot be written");
  }
  std::filesystem::rename(part, path);
}

bool read(const std::string& path, std::string& content) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  content.assign(std::istreambuf_iterator<char>(in), {});
  return true;
}

std::string Group::name() const { return text_of(items_.front().call) + " in " + comm_.folder; }

void Group::start() {
  started_ = true;
  for (Item& item : items_) {
    const Call& c = item.call;
    const bool message = c.kind == Kind::send || c.kind == Kind::receive;
    const std::string me = std::to_string(comm_.rank), other = std::to_string(c.root);
    if (c.kind == Kind::receive) {
      item.others = {comm_.folder + "/m" + other + "-" + me + "." + std::to_string(comm_.received[c.root]++)};
      continue;
    }
    const std::string name = comm_.folder + "/c" + std::to_string(comm_.collectives) + ".";
    item.file =
        message ? comm_.folder + "/m" + me + "-" + other + "." + std::to_string(comm_.sent[c.root]++) : name + me;
    std::string content(reinterpret_cast<const char*>(&c), sizeof c);
    if (c.kind != Kind::broadcast || c.root == comm_.rank)
      content.append(static_cast<const char*>(item.from), contributed(c, comm_.size) * size_of(c.type));
    publish(item.file, content);
    if (message) continue;
    ++comm_.collectives;
    for (int r = 0; r < comm_.size; ++r) item.others.push_back(name + std::to_string(r));
  }
}

bool Group::advance() {
  if (!started_) start();
  bool over = true;
  for (Item& item : items_) {
    item.over = item.over || end(item);
    over = over && item.over;
  }
  if (!over) return false;
  std::vector<std::string> published;
  for (const Item& item : items_) {
    if (item.call.kind != Kind::send && item.call.kind != Kind::receive) published.push_back(item.file);
  }
  if (published.empty()) return true;
  // All ranks have started this operation, and so have ended the collectives before.
  for (const std::string& file : comm_.published) std::remove(file.c_str());
  comm_.published = published;
  return true;
}

// A message that was sent has ended when the receiver has removed it.
bool Group::end(Item& item) {
  if (item.call.kind == Kind::send) return !std::filesystem::exists(item.file);
  std::vector<std::string> contents(item.others.size());
  for (std::size_t r = 0; r < contents.size(); ++r) {
    if (!read(item.others[r], contents[r])) return false;
    Call there = call_in(contents[r]);
    if (item.call.kind == Kind::receive) there.kind = Kind::receive, there.root = item.call.root;
    if (there == item.call) continue;
    comm_.failed = true;
    throw std::runtime_error("NCCL: " + text_of(item.call) + ", and on rank " + std::to_string(r) + " " +
                             text_of(call_in(contents[r])) + " (" + item.others[r] + ")");
  }
  finish(item, contents);
  return true;
}

void Group::finish(const Item& item, const std::vector<std::string>& contents) {
  const Call& c = item.call;
  const std::size_t bytes = c.count * size_of(c.type);
  const auto me = static_cast<std::size_t>(comm_.rank), size = static_cast<std::size_t>(comm_.size);
  auto* const to = static_cast<std::byte*>(item.to);
  switch (c.kind) {
    case Kind::receive:
      std::memcpy(to, contents[0].data() + sizeof c, bytes);
      std::remove(item.others[0].c_str());
      return;
    case Kind::broadcast:
      std::memcpy(to, contents[static_cast<std::size_t>(c.root)].data() + sizeof c, bytes);
      return;
    case Kind::all_gather:
      for (std::size_t r = 0; r < size; ++r) std::memcpy(to + r * bytes, contents[r].data() + sizeof c, bytes);
      return;
    case Kind::reduce_scatter:
      return reduce(contents, c, me * c.count, (me + 1) * c.count, me, to);
    case Kind::reduce:
      if (comm_.rank == c.root) reduce(contents, c, 0, c.count, me, to);
      return;
    default:  // all-reduce, in a part for each rank
      for (std::size_t r = 0; r < size; ++r) {
        const std::uint64_t begin = c.count * r / size, end = c.count * (r + 1) / size;
        reduce(contents, c, begin, end, r, to + begin * size_of(c.type));
      }
  }
}

}  // namespace fp8::ccl
