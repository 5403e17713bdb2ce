// Fragments: layers by the names of their tensors, dealt out to fragments.
// SPDX-License-Identifier: Apache-2.0
#include "sync/fragments.h"

#include <algorithm>
#include <map>

namespace thinwire {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of(kDigits) == part.npos;
}

// Of the part that begins at `begin`.
size_t end_of_part(std::string_view name, size_t begin) {
  return std::min(name.find('.', begin), name.size());
}

}  // namespace

std::string_view layer_of(std::string_view tensor) {
  const size_t digit = tensor.find_first_of(kDigits);
  if (digit == tensor.npos) return tensor.substr(0, tensor.rfind('.'));
  size_t end = end_of_part(tensor, digit);
  while (end < tensor.size()) {
    const size_t next = end_of_part(tensor, end + 1);
    if (!is_number(tensor.substr(end + 1, next - end - 1))) break;
    end = next;
  }
  return tensor.substr(0, end);
}

std::vector<std::vector<size_t>> layers_of(const std::vector<TensorSpec>& tensors) {
  std::map<std::string_view, size_t> numbers;
  std::vector<std::vector<size_t>> layers;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [found, first] = numbers.try_emplace(layer_of(tensors[i].name), layers.size());
    if (first) layers.emplace_back();
    layers[found->second].push_back(i);
  }
  return layers;
}

std::vector<std::vector<size_t>> cut_into_fragments(const std::vector<TensorSpec>& tensors,
                                                    size_t count, FragmentOrder order) {
  const auto layers = layers_of(tensors);
  std::vector<std::vector<size_t>> fragments(count);
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool strided = order == FragmentOrder::kStrided;
    auto& fragment = fragments[strided ? i % count : i * count / layers.size()];
    fragment.insert(fragment.end(), layers[i].begin(), layers[i].end());
  }
  for (auto& fragment : fragments) std::sort(fragment.begin(), fragment.end());
  return fragments;
}

}  // namespace thinwire
