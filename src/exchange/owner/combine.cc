// The table of combining rules, and the rule `mean`.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/combine.h"

#include <array>
#include <utility>

#include "core/named_row.h"
#include "exchange/engine/step_context.h"
#include "exchange/owner/vector_rule.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

class Mean final : public Combine {
 public:
  bool wants_rows() const noexcept override { return false; }
  void combine(std::span<const float> /*result itself*/, size_t ranks,
               std::span<const float> /*none*/, std::span<float> result) const override {
    kernel::scale(result, mean_weight(ranks));
  }
};

const CombineEntry kMean{.name = "mean",
                         .summary = "the sum over ranks times 1/n",
                         .make = [](const Options&) -> std::shared_ptr<const Combine> {
                           return std::make_shared<Mean>();
                         }};

}  // namespace

extern const CombineEntry kMedian, kCge, kKrum;

std::span<const CombineEntry* const> list_combines() noexcept {
  static constexpr std::array kAll = {&kMean, &kMedian, &kCge, &kKrum};
  return kAll;
}

Result<NamedCombine> make_combine(std::string_view text) {
  auto named = find_named_row(list_combines(), "combine", text);
  if (!named) return Status::fail(named.status().code(), "exchange: " + named.status().message());
  return NamedCombine{.rule = named.value().row->make(named.value().options),
                      .canonical = named.value().canonical()};
}

const Combine& mean_of_ranks() noexcept {
  static const Mean mean;
  return mean;
}

std::string lack_of_ranks(const NamedCombine& combine, size_t ranks) {
  const VectorRule* const rule = combine.rule->over_vectors();
  if (rule == nullptr || ranks >= rule->least_ranks()) return "";
  return "combine = " + combine.canonical + " needs " + rule->least_ranks_text();
}

}  // namespace thinwire
