// Converts tensors and saved states between the forms of C++ and of Python.
// SPDX-License-Identifier: Apache-2.0
#include "saved_store.h"

#include <span>

#include "thinwire/status.h"

namespace thinwire::python {
namespace {

TensorKind kind_from(const std::string& name) {
  constexpr auto kLast = static_cast<uint8_t>(TensorKind::kOther);
  for (uint8_t i = 0; i <= kLast; ++i)
    if (to_string(static_cast<TensorKind>(i)) == name) return static_cast<TensorKind>(i);
  throw Error(ErrorCode::kUnknownName, "unknown kind of tensor '" + name + "'");
}

}  // namespace

std::vector<TensorSpec> specs_of(const std::vector<NamedShape>& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, shape, kind] : tensors)
    specs.push_back({.name = name, .shape = shape, .kind = kind_from(kind)});
  return specs;
}

std::vector<SavedArray> saved_arrays(const StateArrays& arrays) {
  std::vector<SavedArray> saved;
  for (const StateArray& array : arrays)
    saved.emplace_back(
        array.name, static_cast<int>(array.type), static_cast<int>(array.on_resize), array.shape,
        std::string(reinterpret_cast<const char*>(array.data.data()), array.data.size()));
  return saved;
}

StateArrays state_arrays(const std::vector<SavedArray>& saved) {
  StateArrays arrays;
  for (const auto& [name, type, on_resize, shape, bytes] : saved) {
    const auto data = std::as_bytes(std::span(bytes));
    arrays.push_back({.name = name,
                      .type = static_cast<StateType>(type),
                      .shape = shape,
                      .on_resize = static_cast<OnResize>(on_resize),
                      .data = {data.begin(), data.end()}});
  }
  return arrays;
}

std::vector<SavedArray> save_store(const Store& store) { return saved_arrays(store.save()); }

std::unique_ptr<Store> load_store(const std::vector<std::vector<SavedArray>>& saved, Group& group,
                                  int inside, int columns) {
  auto store = std::make_unique<Store>();
  together(group, [&] {
    std::vector<StateArrays> ranks;
    for (const auto& rank : saved) ranks.push_back(state_arrays(rank));
    if (const Status status =
            store->load(ranks, group.rank() / columns, group.size() / columns, inside);
        !status)
      throw Error(status.code(), "rank " + std::to_string(group.rank()) + ": " + status.message());
  });
  return store;
}

bool may_go_on(const Error& error) noexcept {
  return error.code() != ErrorCode::kPeerLost && error.code() != ErrorCode::kTimeout;
}

std::vector<std::string> tell_all(Group& group, const std::string& text) {
  std::vector<std::string> texts;
  for (const auto& bytes : group.all_gather_v(std::as_bytes(std::span(text))))
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return texts;
}

}  // namespace thinwire::python
