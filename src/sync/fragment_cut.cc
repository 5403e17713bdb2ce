// FragmentCut: sums of names and shapes, and the fragment of each tensor.
// SPDX-License-Identifier: Apache-2.0
#include "sync/fragment_cut.h"

#include <algorithm>
#include <span>

#include "core/checksum.h"

namespace thinwire {
namespace {

constexpr const char* kTensors = "tensors";
constexpr const char* kFragments = "fragments";
constexpr const char* kShape = "shape";  // the number of fragments, and their order

int64_t sum_of(const TensorSpec& tensor) {
  return static_cast<int64_t>(
      checksum(std::as_bytes(std::span(tensor.name)), std::as_bytes(std::span(tensor.shape))));
}

// Of any length; empty where it is missing or no list of numbers.
std::vector<int64_t> list_of(const StateArrays& arrays, std::string_view name) {
  for (const StateArray& array : arrays) {
    if (array.name != name) continue;
    std::vector<int64_t> list(array.data.size() / sizeof(int64_t));
    return copy_state(arrays, name, std::span(list)) ? list : std::vector<int64_t>{};
  }
  return {};
}

Status differs(const std::string& what) {
  return Status::fail(ErrorCode::kMismatch, "streaming: " + what);
}

std::string order_name(int64_t order) {
  return order == static_cast<int64_t>(FragmentOrder::kStrided) ? "strided" : "sequential";
}

std::string counted(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

FragmentCut::FragmentCut(const std::vector<TensorSpec>& tensors,
                         const std::vector<std::vector<size_t>>& fragments, FragmentOrder order)
    : fragments_(tensors.size()),
      count_(static_cast<int64_t>(fragments.size())),
      order_(static_cast<int64_t>(order)) {
  for (const TensorSpec& tensor : tensors) {
    names_.push_back(tensor.name);
    sums_.push_back(sum_of(tensor));
  }
  for (size_t p = 0; p < fragments.size(); ++p)
    for (const size_t tensor : fragments[p]) fragments_[tensor] = static_cast<int64_t>(p);
}

Status FragmentCut::compare(const FragmentCut& saved) const {
  if (saved.sums_.size() != sums_.size())
    return differs("the saved state is of " + counted(saved.sums_.size(), "tensor") +
                   ", and the model has " + std::to_string(sums_.size()));
  for (size_t i = 0; i < sums_.size(); ++i)
    if (saved.sums_[i] != sums_[i])
      return differs("tensor '" + names_[i] + "', number " + std::to_string(i) +
                     " from 0, had another name or shape in the saved state");
  if (saved.count_ != count_)
    return differs("the saved state is of " +
                   counted(static_cast<size_t>(saved.count_), "fragment") + ", and there are " +
                   std::to_string(count_) + " now");
  for (size_t i = 0; i < sums_.size(); ++i)
    if (saved.fragments_[i] != fragments_[i])
      return differs(
          "tensor '" + names_[i] + "' is in fragment " + std::to_string(fragments_[i]) +
          ", and in the saved state it is in fragment " + std::to_string(saved.fragments_[i]) +
          (saved.order_ == order_
               ? ""
               : ": order was " + order_name(saved.order_) + " and is " + order_name(order_)));
  return Status::ok();
}

StateArrays FragmentCut::save() const {
  const std::vector<int64_t> shape = {count_, order_};
  StateArrays arrays;
  arrays.push_back(make_state(kTensors, std::span<const int64_t>(sums_), OnResize::kShared));
  arrays.push_back(make_state(kFragments, std::span<const int64_t>(fragments_), OnResize::kShared));
  arrays.push_back(make_state(kShape, std::span<const int64_t>(shape), OnResize::kShared));
  return arrays;
}

Status FragmentCut::load(const StateArrays& arrays) {
  FragmentCut saved;
  saved.sums_ = list_of(arrays, kTensors);
  saved.fragments_ = list_of(arrays, kFragments);
  const std::vector<int64_t> shape = list_of(arrays, kShape);
  if (shape.size() != 2 || shape[0] < 0 || saved.fragments_.size() != saved.sums_.size())
    return differs("the saved state does not say how the model was cut");
  saved.count_ = shape[0];
  saved.order_ = shape[1];
  return compare(saved);
}

}  // namespace thinwire
