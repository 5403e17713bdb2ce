// Contributions: gives each rank its row, or all ranks the sum, and asks the rule.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/rules/contributions.h"

#include <algorithm>

#include "exchange/rules/vector_rule.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

size_t remembered_rows_of(const Combine& rule) {
  return rule.over_vectors() == nullptr ? 0 : rule.over_vectors()->remembered_rows();
}

}  // namespace

Contributions::Contributions(const Combine& rule, size_t ranks, size_t most)
    : usual_(rule),
      rule_(&rule),
      ranks_(ranks),
      remembered_rows_(remembered_rows_of(rule)),
      rows_(rule.wants_rows() ? (ranks + remembered_rows_) * most : most),
      result_(rule.wants_rows() && rule.over_vectors() == nullptr ? most : 0) {}

void Contributions::begin(size_t count, size_t participants) {
  rule_ = &usual_;
  count_ = count;
  participants_ = participants;
  next_ = 0;
  kernel::fill(std::span(rows_).first(rule_->wants_rows() ? participants * count : count), -0.0f);
}

std::span<float> Contributions::next() noexcept {
  return std::span(rows_).subspan(rule_->wants_rows() ? next_++ * count_ : 0, count_);
}

std::span<float> Contributions::row(size_t index) noexcept {
  return std::span(rows_).subspan(index * count_, count_);
}

void Contributions::combine_only(const std::vector<bool>& participants, const Combine& rule) {
  rule_ = &rule;
  size_t count = 0;
  for (size_t from = 0; from < participants.size(); ++from) {
    if (!participants[from]) continue;
    if (const auto source = row(from); count != from)
      std::copy(source.begin(), source.end(), row(count).begin());
    ++count;
  }
  participants_ = count;
}

std::span<float> Contributions::remembered() noexcept {
  return std::span(rows_).subspan(participants_ * count_, remembered_rows_ * count_);
}

std::span<const float> Contributions::all_rows() const noexcept {
  return std::span(rows_).first((participants_ + remembered_rows_) * count_);
}

void Contributions::add_statistics(std::span<double> statistics) const {
  rule_->over_vectors()->add_statistics(all_rows(), participants_, statistics);
}

void Contributions::next_remembered(std::span<float> next) const {
  rule_->over_vectors()->next_remembered(all_rows(), participants_, next);
}

std::span<float> Contributions::combine(std::span<const float> row_weights) {
  const bool rows = rule_->wants_rows();
  const std::span<float> result =
      std::span(rows && rule_->over_vectors() == nullptr ? result_ : rows_).first(count_);
  rule_->combine(rows ? all_rows() : std::span(rows_).first(count_), rows ? participants_ : ranks_,
                 row_weights, result);
  return result;
}

}  // namespace thinwire
