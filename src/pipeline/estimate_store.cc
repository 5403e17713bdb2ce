// EstimateStore: keys in order of first visits, and the slots that hold their estimates.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/estimate_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernel/half_float.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kForm = "form";
constexpr const char* kKeys = "keys";
constexpr const char* kTags = "tags";
constexpr const char* kValues = "values";

// Returns whether all are finite.
bool to_floats(ValueFormat format, std::span<const std::byte> bytes, std::span<float> out) {
  switch (format) {
    case ValueFormat::kFp16:
      return kernel::from_half(bytes.first(2 * out.size()), out);
    case ValueFormat::kBf16:
      return kernel::from_bfloat(bytes.first(2 * out.size()), out);
    default:
      if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size_bytes());
      return kernel::moments(out).finite;
  }
}

void from_floats(ValueFormat format, std::span<const float> values, std::span<std::byte> bytes) {
  switch (format) {
    case ValueFormat::kFp16:
      return kernel::to_half_saturated(values, bytes.first(2 * values.size()));
    case ValueFormat::kBf16:
      return kernel::to_bfloat_saturated(values, bytes.first(2 * values.size()));
    default:
      if (!values.empty()) std::memcpy(bytes.data(), values.data(), values.size_bytes());
  }
}

StateArray make_numbers(const char* name, const std::vector<uint64_t>& numbers) {
  const std::vector<int64_t> as_signed(numbers.begin(), numbers.end());
  return make_state(name, std::span<const int64_t>(as_signed), OnResize::kCopy);
}

Status mismatch(const std::string& why) {
  return Status::fail(ErrorCode::kMismatch, "boundary: saved estimates " + why);
}

Status read_numbers(const StateArrays& arrays, const char* name, std::vector<uint64_t>& out) {
  const StateArray* array = find_state(arrays, name);
  if (array == nullptr) return mismatch("have no array '" + std::string(name) + "'");
  std::vector<int64_t> numbers(array->data.size() / sizeof(int64_t));
  if (Status status = copy_state(arrays, name, std::span<int64_t>(numbers)); !status) return status;
  out.assign(numbers.begin(), numbers.end());
  return Status::ok();
}

}  // namespace

EstimateStore::EstimateStore(EstimateForm form) : form_(std::move(form)) { clear(); }

size_t EstimateStore::slot_size() const noexcept {
  return form_.count * (form_.format == ValueFormat::kFp32 ? 4 : 2);
}

std::optional<size_t> EstimateStore::find(uint64_t key) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

void EstimateStore::read(size_t index, std::span<float> out) const noexcept {
  to_floats(form_.format, std::as_const(*slots_).at(index), out);
}

void EstimateStore::reserve(size_t more) {
  slots_->grow(size() + more);
  if (size() + more <= keys_.capacity()) return;
  keys_.reserve(std::max(2 * keys_.capacity(), size() + more));  // doubling, as push_back would
  tags_.reserve(keys_.capacity());
  index_.reserve(keys_.capacity());
}

void EstimateStore::write(uint64_t key, uint64_t tag, std::span<const float> values) {
  const auto [place, is_new] = index_.try_emplace(key, size());
  if (is_new) {
    keys_.push_back(key);
    tags_.push_back(tag);
  }
  const std::span<std::byte> slot = slots_->at(place->second);
  const size_t used = values.size() * slot_size() / form_.count;
  from_floats(form_.format, values, slot.first(used));
  std::fill(slot.begin() + static_cast<std::ptrdiff_t>(used), slot.end(), std::byte{0});
}

void EstimateStore::clear() {
  slots_ = std::make_unique<SlotMemory>(slot_size(), form_.budget, form_.folder);
  index_.clear();
  keys_.clear();
  tags_.clear();
}

StateArrays EstimateStore::save() const {
  const std::vector<int64_t> form = {static_cast<int64_t>(form_.count),
                                     static_cast<int64_t>(form_.format)};
  StateArray values{.name = kValues,
                    .type = StateType::kUint8,
                    .shape = {size(), slot_size()},
                    .on_resize = OnResize::kCopy,
                    .data = {}};
  values.data.reserve(size() * slot_size());
  for (size_t i = 0; i < size(); ++i) {
    const auto slot = std::as_const(*slots_).at(i);
    values.data.insert(values.data.end(), slot.begin(), slot.end());
  }
  StateArrays arrays = {make_state(kForm, std::span<const int64_t>(form), OnResize::kCopy),
                        make_numbers(kKeys, keys_), make_numbers(kTags, tags_)};
  arrays.push_back(std::move(values));
  return arrays;
}

Status EstimateStore::load(const StateArrays& arrays) {
  std::vector<int64_t> form(2);
  if (Status status = copy_state(arrays, kForm, std::span<int64_t>(form)); !status) return status;
  if (form[0] != static_cast<int64_t>(form_.count) || form[1] != static_cast<int64_t>(form_.format))
    return mismatch("have another length or precision");
  std::vector<uint64_t> keys, tags;
  if (Status status = read_numbers(arrays, kKeys, keys); !status) return status;
  if (Status status = read_numbers(arrays, kTags, tags); !status) return status;
  const StateArray* values = find_state(arrays, kValues);
  if (values == nullptr || values->type != StateType::kUint8 || tags.size() != keys.size() ||
      values->data.size() != keys.size() * slot_size())
    return mismatch("are not as many as their keys");

  EstimateStore loaded(form_);
  loaded.reserve(keys.size());
  std::vector<float> estimate(form_.count);
  const std::span<const std::byte> all = values->data;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (loaded.find(keys[i])) return mismatch("have a key twice");
    if (!to_floats(form_.format, all.subspan(i * slot_size(), slot_size()), estimate))
      return mismatch("are not finite");
    loaded.write(keys[i], tags[i], estimate);
  }
  *this = std::move(loaded);
  return Status::ok();
}

}  // namespace thinwire
