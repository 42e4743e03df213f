// Greedy packing: into each sequence the longest document that fits, again and again.
#include "fp8/chat/pack.h"

#include <map>
#include <utility>

#include "fp8/base/error.h"

namespace fp8::chat {
namespace {

constexpr std::size_t kGroup = 1000;  // LLaMA-Factory's preprocessing_batch_size

// Appends a document to a sequence. Its first token has nothing before it to be predicted from, so it is no target.
void append(const Document& document, Row& row) {
  row.ids.insert(row.ids.end(), document.ids.begin(), document.ids.end());
  row.mask.push_back(0);
  row.mask.insert(row.mask.end(), document.mask.begin() + 1, document.mask.end());
  row.lengths.push_back(document.ids.size());
}

}  // namespace

Packer::Packer(std::size_t length, std::uint32_t padding, std::function<void(Row)> deliver)
    : length_(length), padding_(padding), deliver_(std::move(deliver)) {
  if (length_ < 2) throw Error("packed sequences need at least 2 tokens");
}

void Packer::add(Document document) {
  if (document.ids.empty() || document.ids.size() >= length_) throw Error("packing: a document has the wrong length");
  group_.push_back(std::move(document));
  count_record();
}

void Packer::skip() { count_record(); }

void Packer::finish() { pack_group(); }

void Packer::count_record() {
  if (++records_ == kGroup) pack_group();
}

void Packer::pack_group() {
  std::map<std::size_t, std::vector<std::size_t>> by_length;  // numbers of the documents of each length, in order
  for (std::size_t i = 0; i < group_.size(); ++i) by_length[group_[i].ids.size()].push_back(i);
  while (!by_length.empty()) {
    Row row;
    for (std::size_t room = length_ - 1; room > 0;) {
      auto longest = by_length.upper_bound(room);
      if (longest == by_length.begin()) break;
      --longest;
      room -= longest->first;
      append(group_[longest->second.back()], row);
      longest->second.pop_back();
      if (longest->second.empty()) by_length.erase(longest);
    }
    row.padding = length_ - row.ids.size();
    row.ids.resize(length_, padding_);
    row.mask.resize(length_, 0);
    deliver_(std::move(row));
  }
  group_.clear();
  records_ = 0;
}

}  // namespace fp8::chat
