// Chooses the holders of tensors, and takes apart what belongs to each.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/levels/holders.h"

#include <algorithm>
#include <string>
#include <utility>

namespace thinwire {
namespace {

// Tensors with one holder: those of a section that is one stream, or one tensor.
struct Unit {
  std::vector<size_t> tensors;
  size_t count = 0;
};

std::vector<Unit> units_of(const Sections& sections, const std::vector<TensorSpec>& tensors) {
  std::vector<Unit> units;
  for (const Section& section : sections.used) {
    const bool whole = is_one_stream(section.terms.grouping);
    if (whole) units.emplace_back();
    for (const size_t tensor : section.tensors) {
      if (!whole) units.emplace_back();
      units.back().tensors.push_back(tensor);
      units.back().count += tensors[tensor].count();
    }
  }
  return units;
}

}  // namespace

std::string divisors_text(int number) {
  std::string text;
  for (int divisor = 1; divisor <= number; ++divisor)
    if (number % divisor == 0) text += (text.empty() ? "" : ", ") + std::to_string(divisor);
  return text;
}

void check_groups(int inside, int ranks) {
  if (ranks % inside == 0) return;
  throw Error(ErrorCode::kBadOption, "exchange: groups of inside = " + std::to_string(inside) +
                                         " ranks do not make up " + std::to_string(ranks) +
                                         " ranks; choose one of " + divisors_text(ranks));
}

std::vector<size_t> choose_holders(const Sections& sections, const std::vector<TensorSpec>& tensors,
                                   size_t inside) {
  std::vector<Unit> units = units_of(sections, tensors);
  std::sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) {
    return a.count != b.count ? a.count > b.count : a.tensors.front() < b.tensors.front();
  });
  std::vector<size_t> holder_of(tensors.size());
  std::vector<size_t> load(inside);
  for (const Unit& unit : units) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += unit.count;
    for (const size_t tensor : unit.tensors)
      holder_of[tensor] = static_cast<size_t>(least - load.begin());
  }
  return holder_of;
}

void check_holders(const Sections& sections, const std::vector<TensorSpec>& tensors,
                   const std::vector<size_t>& holder_of) {
  for (const Unit& unit : units_of(sections, tensors))
    for (const size_t tensor : unit.tensors)
      if (holder_of[tensor] != holder_of[unit.tensors.front()])
        throw Error(ErrorCode::kBadOption,
                    "change: grouping \"model\" would make one stream of '" +
                        tensors[unit.tensors.front()].name + "' and '" + tensors[tensor].name +
                        "', which different ranks of a group hold; a new exchange can");
}

Holding holding_of(size_t place, const std::vector<size_t>& holder_of, const Sections& sections,
                   const std::vector<TensorSpec>& tensors) {
  Holding holding;
  std::vector<size_t> number(tensors.size());  // among those held
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    if (holder_of[tensor] != place) continue;
    number[tensor] = holding.tensors.size();
    holding.tensors.push_back(tensor);
    holding.specs.push_back(tensors[tensor]);
  }
  holding.sections.of_tensor.resize(holding.tensors.size());
  Selection& of_all = holding.sections.of_all;
  of_all = {.places = std::vector<size_t>(holding.tensors.size()), .all = tensors.size()};
  for (size_t id = 0; id < sections.used.size(); ++id) {
    Section section = sections.used[id];
    const std::vector<size_t> all = std::exchange(section.tensors, {});
    for (size_t i = 0; i < all.size(); ++i) {
      if (holder_of[all[i]] != place) continue;
      const size_t tensor = number[all[i]];
      section.tensors.push_back(tensor);
      of_all.places[tensor] = i;
      holding.sections.of_tensor[tensor] = holding.sections.used.size();
    }
    if (section.tensors.empty()) continue;
    holding.sections.used.push_back(std::move(section));
    holding.section_ids.push_back(id);
  }
  return holding;
}

}  // namespace thinwire
