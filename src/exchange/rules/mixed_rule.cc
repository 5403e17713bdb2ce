// A rule after a mix: weights of the mix, then those of the rule for the rows that it makes. The
// row that a rule remembers from step to step is not mixed.
//
// The statistics are products of the ranks' rows. Those of mixed rows follow from them, so that one
// round is enough, however many mixes stand before a rule. Mixing costs a product of each weight
// that is not zero with each value: n (n - f) per value for nnm, n for the others.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/aligned.h"
#include "exchange/rules/mix.h"
#include "exchange/rules/vector_rule.h"
#include "kernel/add_floats.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kBlock = 512;  // values of each row that are mixed at once, in cache

// Statistics of one kind of rows that are sums of others.
std::vector<double> statistics_of(RowStatistics kind, const PairTable& products,
                                  std::span<const float> mix, size_t rows) {
  const size_t ranks = products.ranks();
  const auto weight = [&](size_t row, size_t rank) -> double { return mix[row * ranks + rank]; };
  std::vector<double> found, u(ranks);
  for (size_t a = 0; a < rows; ++a) {
    const size_t begin = kind == RowStatistics::kSquareDistances ? a + 1 : a;
    const size_t end = kind == RowStatistics::kSquareNorms ? a + 1 : rows;
    for (size_t b = begin; b < end; ++b) {
      if (kind == RowStatistics::kSquareDistances) {
        for (size_t i = 0; i < ranks; ++i) u[i] = weight(a, i) - weight(b, i);
        found.push_back(square_norm_of_sum(products, u));
        continue;
      }
      double sum = 0;
      for (size_t i = 0; i < ranks; ++i)
        for (size_t j = 0; j < ranks; ++j)
          if (weight(a, i) != 0 && weight(b, j) != 0)
            sum += weight(a, i) * weight(b, j) * products.at(i, j);
      found.push_back(sum);
    }
  }
  return found;
}

class MixedRule final : public VectorRule {
 public:
  MixedRule(std::shared_ptr<const Mix> mix, std::shared_ptr<const Combine> rule)
      : mix_(std::move(mix)),
        rule_(std::move(rule)),
        inner_(rule_->over_vectors()),
        most_(rule_->most_ranks()) {
    const LeastRanks of_rule = rule_->least_ranks();
    need_ = mix_->needs({of_rule.count, of_rule.count == 1 ? "1" : std::string(of_rule.formula)});
    while (rule_->most_ranks() != SIZE_MAX && mix_->rows(most_ + 1) <= rule_->most_ranks()) ++most_;
  }

  LeastRanks least_ranks() const noexcept override { return {need_.count, need_.formula}; }
  size_t most_ranks() const noexcept override { return most_; }
  size_t tolerates(size_t ranks) const noexcept override {
    return std::min(mix_->tolerates(), rule_->tolerates(mix_->rows(ranks)));
  }
  Remembers remembers() const noexcept override {
    return inner_ == nullptr ? Remembers::kNothing : inner_->remembers();
  }
  float first_remembered() const noexcept override {
    return inner_ == nullptr ? 0 : inner_->first_remembered();
  }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kProducts; }

  size_t weights(size_t ranks) const noexcept override {
    const size_t rows = mix_->rows(ranks);
    return rows * ranks + (inner_ != nullptr ? inner_->weights(rows) : 0);
  }

  void weigh(std::span<const double> statistics, const RuleCall& call,
             std::span<float> row_weights) const override {
    const size_t ranks = call.ranks, all = ranks + remembered_rows();
    const PairTable of_all = products(statistics, all);
    const size_t rows = mix_->rows(ranks);
    const auto of_mix = row_weights.first(rows * ranks);
    mix_->mix(of_all.first(ranks), call, of_mix);
    if (inner_ == nullptr) return;
    std::vector<float> with_remembered((rows + remembered_rows()) * all);
    for (size_t row = 0; row < rows; ++row)
      std::copy_n(of_mix.begin() + static_cast<std::ptrdiff_t>(row * ranks), ranks,
                  with_remembered.begin() + static_cast<std::ptrdiff_t>(row * all));
    if (remembered_rows() == 1) with_remembered.back() = 1;
    inner_->weigh(
        statistics_of(inner_->decides_by(), of_all, with_remembered, rows + remembered_rows()),
        {.ranks = rows, .seed = call.seed, .step = call.step}, row_weights.subspan(rows * ranks));
  }

  // None of the rows that the rule chose has a part of it.
  bool leaves_out(size_t rank, size_t ranks, std::span<const float> row_weights) const override {
    const size_t rows = mix_->rows(ranks);
    for (size_t row = 0; row < rows; ++row)
      if (row_weights[row * ranks + rank] != 0 &&
          (inner_ == nullptr || !inner_->leaves_out(row, rows, row_weights.subspan(rows * ranks))))
        return false;
    return true;
  }

  // Block by block, so that the first row may be the result.
  void combine(std::span<const float> rows, size_t ranks, std::span<const float> row_weights,
               std::span<float> result) const override {
    const size_t count = result.size(), mixed_rows = mix_->rows(ranks);
    AlignedVector<float> room((mixed_rows + remembered_rows()) * std::min(kBlock, count));
    for (size_t begin = 0; begin < count; begin += kBlock) {
      const size_t width = std::min(kBlock, count - begin);
      const auto mixed = std::span(room).first((mixed_rows + remembered_rows()) * width);
      kernel::fill(mixed.first(mixed_rows * width), -0.0f);
      for (size_t row = 0; row < mixed_rows; ++row)
        for (size_t rank = 0; rank < ranks; ++rank)
          if (const float weight = row_weights[row * ranks + rank]; weight != 0)
            kernel::add_floats(std::as_bytes(rows.subspan(rank * count + begin, width)), weight,
                               mixed.subspan(row * width, width));
      if (remembered_rows() == 1) {
        const auto remembered = rows.subspan(ranks * count + begin, width);
        std::copy(remembered.begin(), remembered.end(), mixed.last(width).begin());
      }
      const auto of_block = result.subspan(begin, width);
      if (rule_->wants_rows()) {
        rule_->combine(mixed, mixed_rows, row_weights.subspan(mixed_rows * ranks), of_block);
        continue;
      }
      kernel::fill(of_block, -0.0f);
      for (size_t row = 0; row < mixed_rows; ++row)
        kernel::add_floats(std::as_bytes(mixed.subspan(row * width, width)), 1.0f, of_block);
      rule_->combine(of_block, mixed_rows, {}, of_block);
    }
  }

 private:
  const std::shared_ptr<const Mix> mix_;
  const std::shared_ptr<const Combine> rule_;
  const VectorRule* const inner_;  // the same, if it chooses among whole vectors
  size_t most_;                    // ranks
  Mix::Need need_;
};

}  // namespace

extern const MixEntry kNnm, kBucketing, kClipRows;

std::span<const MixEntry* const> list_mixes() noexcept {
  static constexpr std::array kAll = {&kNnm, &kBucketing, &kClipRows};
  return kAll;
}

double square_norm_of_sum(const PairTable& products, std::span<const double> u) noexcept {
  double sum = 0;
  for (size_t i = 0; i < u.size(); ++i)
    for (size_t j = 0; j < u.size(); ++j)
      if (u[i] != 0 && u[j] != 0) sum += u[i] * u[j] * products.at(i, j);
  return std::isnan(sum) ? kInfinity : std::max(0.0, sum);
}

std::shared_ptr<const Combine> make_mixed_rule(std::shared_ptr<const Mix> mix,
                                               std::shared_ptr<const Combine> rule) {
  return std::make_shared<MixedRule>(std::move(mix), std::move(rule));
}

}  // namespace thinwire
