// The table of combining rules, the rule `mean`, and the memory for contributions.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/combine.h"

#include <array>

#include "exchange/engine/step_context.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

class Mean final : public Combine {
 public:
  bool wants_rows() const noexcept override { return false; }
  void combine(std::span<const float> /*result itself*/, size_t ranks,
               std::span<float> result) const override {
    kernel::scale(result, mean_weight(ranks));
  }
};

constexpr CombineEntry kMean{
    .name = "mean", .summary = "the sum over ranks times 1/n", .rule = []() -> const Combine& {
      static const Mean rule;
      return rule;
    }};

}  // namespace

extern const CombineEntry kMedian;

std::span<const CombineEntry* const> list_combines() noexcept {
  static constexpr std::array kAll = {&kMean, &kMedian};
  return kAll;
}

const Combine* find_combine(std::string_view name) noexcept {
  for (const CombineEntry* entry : list_combines())
    if (entry->name == name) return &entry->rule();
  return nullptr;
}

Contributions::Contributions(const Combine& rule, size_t ranks, size_t most)
    : rule_(rule),
      ranks_(ranks),
      rows_(rule.wants_rows() ? ranks * most : most),
      result_(rule.wants_rows() ? most : 0) {}

void Contributions::begin(size_t count, size_t participants) {
  count_ = count;
  participants_ = participants;
  next_ = 0;
  kernel::fill(std::span(rows_).first(rule_.wants_rows() ? participants * count : count), -0.0f);
}

std::span<float> Contributions::next() noexcept {
  return std::span(rows_).subspan(rule_.wants_rows() ? next_++ * count_ : 0, count_);
}

std::span<float> Contributions::combine() {
  const bool rows = rule_.wants_rows();
  const std::span<float> result = std::span(rows ? result_ : rows_).first(count_);
  rule_.combine(std::span(rows_).first(rows ? participants_ * count_ : count_),
                rows ? participants_ : ranks_, result);
  return result;
}

}  // namespace thinwire
