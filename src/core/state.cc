// Saved arrays: their sizes, and copies of values into and out of them.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/state.h"

#include <algorithm>
#include <cstring>

namespace thinwire {
namespace {

template <typename T>
StateArray make(std::string name, StateType type, std::span<const T> values, OnResize on_resize) {
  StateArray array{.name = std::move(name),
                   .type = type,
                   .shape = {values.size()},
                   .on_resize = on_resize,
                   .data = std::vector<std::byte>(values.size_bytes())};
  if (!values.empty()) std::memcpy(array.data.data(), values.data(), values.size_bytes());
  return array;
}

template <typename T>
Status copy(const StateArrays& from, std::string_view name, StateType type, std::span<T> out) {
  const auto fail = [&](const std::string& why) {
    return Status::fail(ErrorCode::kMismatch, "state: array '" + std::string(name) + "' " + why);
  };
  const StateArray* found = find_state(from, name);
  if (found == nullptr) return fail("is missing");
  if (found->type != type) return fail("has another type");
  if (found->data.size() != out.size_bytes())
    return fail("has " + std::to_string(found->data.size()) + " bytes, expected " +
                std::to_string(out.size_bytes()));
  if (!out.empty()) std::memcpy(out.data(), found->data.data(), out.size_bytes());
  return Status::ok();
}

}  // namespace

double Stateful::owed_squares() const {
  if (shares_state()) return 0;
  double squares = 0;
  for (const StateArray& array : save()) {
    const bool owed =
        array.on_resize == OnResize::kOwedToMean || array.on_resize == OnResize::kJoin;
    if (!owed || array.type != StateType::kFloat32) continue;
    for (size_t at = 0; at + sizeof(float) <= array.data.size(); at += sizeof(float)) {
      float value;
      std::memcpy(&value, array.data.data() + at, sizeof value);
      squares += static_cast<double>(value) * value;
    }
  }
  return squares;
}

size_t Stateful::held_bytes() const {
  size_t bytes = 0;
  for (const StateArray& array : save()) bytes += 2 * array.data.size();
  return bytes;
}

const StateArray* find_state(const StateArrays& arrays, std::string_view name) noexcept {
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [&](const StateArray& array) { return array.name == name; });
  return found == arrays.end() ? nullptr : &*found;
}

size_t size_of(StateType type) noexcept {
  switch (type) {
    case StateType::kFloat32:
      return 4;
    case StateType::kFloat64:
    case StateType::kInt64:
      return 8;
    case StateType::kUint8:
      return 1;
  }
  return 1;
}

StateArray make_state(std::string name, std::span<const float> values, OnResize on_resize) {
  return make(std::move(name), StateType::kFloat32, values, on_resize);
}
StateArray make_state(std::string name, std::span<const double> values, OnResize on_resize) {
  return make(std::move(name), StateType::kFloat64, values, on_resize);
}
StateArray make_state(std::string name, std::span<const int64_t> values, OnResize on_resize) {
  return make(std::move(name), StateType::kInt64, values, on_resize);
}

Status copy_state(const StateArrays& from, std::string_view name, std::span<float> out) {
  return copy(from, name, StateType::kFloat32, out);
}
Status copy_state(const StateArrays& from, std::string_view name, std::span<double> out) {
  return copy(from, name, StateType::kFloat64, out);
}
Status copy_state(const StateArrays& from, std::string_view name, std::span<int64_t> out) {
  return copy(from, name, StateType::kInt64, out);
}

}  // namespace thinwire
