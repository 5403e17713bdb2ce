// Turns the words of a text into numbers of a vocabulary.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "train/data/compressed_file.h"
#include "train/data/text_set.h"

namespace thinwire {
namespace {

constexpr std::string_view kUnknown = "<unk>", kEndOfLine = "<eos>";

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t begin = 0, i = 0; i <= text.size(); ++i) {
    const bool line_ends = i < text.size() && text[i] == '\n';
    if (i < text.size() && text[i] != ' ' && !line_ends) continue;
    if (i > begin) words.push_back(text.substr(begin, i - begin));
    if (line_ends) words.push_back(kEndOfLine);
    begin = i + 1;
  }
  return words;
}

using Codes = std::unordered_map<std::string_view, int32_t>;

Codes number(const std::vector<std::string_view>& words) {
  std::unordered_map<std::string_view, uint64_t> counts;
  for (const std::string_view word : words) ++counts[word];
  std::vector<std::pair<std::string_view, uint64_t>> order(counts.begin(), counts.end());
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  Codes codes;
  for (const auto& [word, count] : order) codes.emplace(word, static_cast<int32_t>(codes.size()));
  return codes;
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Text read_words(const std::string& train, const std::string& test) {
  const std::vector<std::byte> first = read_file(train), second = read_file(test);
  const std::vector<std::string_view> known = words_of(text_of(first));
  const std::vector<std::string_view> other = words_of(text_of(second));
  const Codes codes = number(known);
  const auto unknown = codes.find(kUnknown);
  if (codes.size() < 2 || unknown == codes.end())
    throw Error(ErrorCode::kCorrupt, train + ": fewer than two distinct words, or none is <unk>");

  Text text{.codes = torch::empty({static_cast<int64_t>(known.size() + other.size())}, torch::kInt),
            .train = known.size(),
            .alphabet = static_cast<int64_t>(codes.size())};
  auto* out = text.codes.mutable_data_ptr<int32_t>();
  for (const auto* part : {&known, &other}) {
    for (const std::string_view word : *part) {
      const auto found = codes.find(word);
      *out++ = found != codes.end() ? found->second : unknown->second;
    }
  }
  return text;
}

}  // namespace thinwire
