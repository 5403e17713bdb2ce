// Tensors and states in the forms in which Python has them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "thinwire/group.h"
#include "thinwire/status.h"
#include "thinwire/store.h"
#include "thinwire/stream.h"

namespace thinwire::python {

// Name, shape, kind.
using NamedShape = std::tuple<std::string, std::vector<uint64_t>, std::string>;
// Name, number of StateType, number of OnResize, shape, bytes: as thinwire._state has it.
using SavedArray = std::tuple<std::string, int, int, std::vector<uint64_t>, std::string>;

// Throws Error(kUnknownName) for a kind that there is not.
std::vector<TensorSpec> specs_of(const std::vector<NamedShape>& tensors);

std::vector<SavedArray> saved_arrays(const StateArrays& arrays);
StateArrays state_arrays(const std::vector<SavedArray>& saved);

std::vector<SavedArray> save_store(const Store& store);
// A store with what this rank gets of the states of `saved.size()` old ranks. Called by all ranks;
// throws on all of them what is wrong with those of one.
std::unique_ptr<Store> load_store(const std::vector<std::vector<SavedArray>>& saved, Group& group,
                                  int inside = 1, int columns = 1);

// Whether ranks that all had such an error can still talk.
bool may_go_on(const Error& error) noexcept;

// What every rank says, in rank order. Called by all ranks.
std::vector<std::string> tell_all(Group& group, const std::string& text);

}  // namespace thinwire::python
