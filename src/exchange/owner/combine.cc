// The table of combining rules, and the rule `mean`.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/combine.h"

#include <array>
#include <string>
#include <utility>

#include "core/named_row.h"
#include "exchange/engine/step_context.h"
#include "exchange/owner/mix.h"
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

extern const CombineEntry kMedian, kTrimmedMean, kMeanAroundMedian, kCge, kKrum, kMultiKrum,
    kBulyan, kMda, kGeometricMedian;

OptionInfo faulty_ranks_option(std::string_view help, double most) {
  return {.name = "f",
          .type = OptionType::kInteger,
          .fallback = "1",
          .min = 0,
          .max = most,
          .unit = "ranks",
          .help = help};
}

std::span<const CombineEntry* const> list_combines() noexcept {
  static constexpr std::array kAll = {&kMean, &kMedian,         &kTrimmedMean, &kMeanAroundMedian,
                                      &kCge,  &kKrum,           &kMultiKrum,   &kBulyan,
                                      &kMda,  &kGeometricMedian};
  return kAll;
}

Result<NamedCombine> make_combine(std::string_view text) {
  constexpr std::string_view kThen = " then ";
  const auto failed = [](const Status& status) {
    return Status::fail(status.code(), "exchange: " + status.message());
  };
  if (const size_t at = text.find(kThen); at != std::string_view::npos) {
    auto mix = find_named_row(list_mixes(), "combine before 'then'", text.substr(0, at));
    if (!mix) return failed(mix.status());
    Result<NamedCombine> rule = make_combine(text.substr(at + kThen.size()));
    if (!rule) return rule;
    return NamedCombine{
        .rule = make_mixed_rule(mix.value().row->make(mix.value().options), rule.value().rule),
        .canonical = mix.value().canonical() + std::string(kThen) + rule.value().canonical};
  }
  auto named = find_named_row(list_combines(), "combine", text);
  if (!named) return failed(named.status());
  return NamedCombine{.rule = named.value().row->make(named.value().options),
                      .canonical = named.value().canonical()};
}

std::string names_of_value_rules() {
  std::string names;
  for (const CombineEntry* entry : list_combines())
    if (make_combine(entry->name).value().rule->over_vectors() == nullptr)
      names += (names.empty() ? "" : ", ") + std::string(entry->name);
  return names;
}

const Combine& mean_of_ranks() noexcept {
  static const Mean mean;
  return mean;
}

std::string lack_of_ranks(const NamedCombine& combine, size_t ranks) {
  const auto [least, formula] = combine.rule->least_ranks();
  if (ranks >= least) return "";
  return "combine = " + combine.canonical + " needs " + std::string(formula) + " = " +
         std::to_string(least) + " ranks at least";
}

}  // namespace thinwire
