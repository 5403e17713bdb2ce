// The table of combining rules, and the rule `mean`.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/combine.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/named_row.h"
#include "exchange/rules/mean_weight.h"
#include "exchange/rules/mix.h"
#include "exchange/rules/vector_rule.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

class Mean final : public Combine {
 public:
  bool wants_rows() const noexcept override { return false; }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return 0; }
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
    kBulyan, kMda, kGeometricMedian, kCentredClipping, kCaf, kSmea, kLicm;

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
  static constexpr std::array kAll = {
      &kMean,   &kMedian, &kTrimmedMean,     &kMeanAroundMedian, &kCge, &kKrum, &kMultiKrum,
      &kBulyan, &kMda,    &kGeometricMedian, &kCentredClipping,  &kCaf, &kSmea, &kLicm};
  return kAll;
}

namespace {

// Finds a row of rules or mixes, and again with a smaller f.
template <typename Table>
auto find_with_fewer(const Table& table, std::string_view what, std::string_view text,
                     size_t excused) {
  auto named = find_named_row(table, what, text);
  if (!named || excused == 0) return named;
  std::string fewer(named.value().row->name);
  for (const OptionInfo& option : named.value().row->options) {
    std::string value = named.value().options.canonical(option.name);
    if (option.name == "f")
      value = std::to_string(
          std::max<int64_t>(0, named.value().options.integer("f") - static_cast<int64_t>(excused)));
    fewer +=
        (fewer.find(':') == std::string::npos ? ":" : ",") + std::string(option.name) + "=" + value;
  }
  return find_named_row(table, what, fewer);
}

}  // namespace

Result<NamedCombine> make_combine(std::string_view text, size_t excused) {
  constexpr std::string_view kThen = " then ";
  const auto failed = [](const Status& status) {
    return Status::fail(status.code(), "exchange: " + status.message());
  };
  if (const size_t at = text.find(kThen); at != std::string_view::npos) {
    auto mix = find_with_fewer(list_mixes(), "combine before 'then'", text.substr(0, at), excused);
    if (!mix) return failed(mix.status());
    Result<NamedCombine> rule = make_combine(text.substr(at + kThen.size()), excused);
    if (!rule) return rule;
    const VectorRule* const of_vectors = rule.value().rule->over_vectors();
    if (of_vectors != nullptr && of_vectors->remembers() == Remembers::kOwn)
      return Status::fail(ErrorCode::kUnsupported,
                          "exchange: combine = " + rule.value().canonical +
                              " decides by single values of the ranks, so that no mix can stand "
                              "before it");
    return NamedCombine{
        .rule = make_mixed_rule(mix.value().row->make(mix.value().options), rule.value().rule),
        .canonical = mix.value().canonical() + std::string(kThen) + rule.value().canonical};
  }
  auto named = find_with_fewer(list_combines(), "combine", text, excused);
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
  if (const size_t most = combine.rule->most_ranks(); ranks > most)
    return "combine = " + combine.canonical + " tries sets of ranks one after another, of " +
           std::to_string(most) + " ranks at most";
  const auto [least, formula] = combine.rule->least_ranks();
  if (ranks >= least) return "";
  return "combine = " + combine.canonical + " needs " + std::string(formula) + " = " +
         std::to_string(least) + " ranks at least";
}

}  // namespace thinwire
