// Rules that combine contributions, as plain loops in double, written from their formulas.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace thinwire::testing {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // by rank

inline double square_distance_of(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

inline Row mean_of(const Rows& rows, const std::vector<size_t>& ranks) {
  Row mean(rows[0].size());
  for (const size_t rank : ranks)
    for (size_t i = 0; i < mean.size(); ++i)
      mean[i] += rows[rank][i] / static_cast<double>(ranks.size());
  return mean;
}

// What `of_column` makes of the sorted values of each coordinate.
inline Row by_column(const Rows& rows, const std::function<double(const Row& sorted)>& of_column) {
  Row result;
  for (size_t i = 0; i < rows[0].size(); ++i) {
    Row column;
    for (const Row& row : rows) column.push_back(row[i]);
    std::sort(column.begin(), column.end());
    result.push_back(of_column(column));
  }
  return result;
}

inline double middle_of(const Row& sorted) {
  const size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

inline Row median_oracle(const Rows& rows) { return by_column(rows, middle_of); }

inline Row trimmed_mean_oracle(const Rows& rows, size_t f) {
  return by_column(rows, [&](const Row& sorted) {
    double sum = 0;
    for (size_t i = f; i < sorted.size() - f; ++i) sum += sorted[i];
    return sum / static_cast<double>(sorted.size() - 2 * f);
  });
}

// The mean of the `count` values nearest to the median; of two equally near, the smaller is nearer.
inline Row mean_around_median_oracle(const Rows& rows, size_t count) {
  return by_column(rows, [&](Row values) {
    const double median = middle_of(values);
    std::stable_sort(values.begin(), values.end(), [&](double a, double b) {
      return std::abs(a - median) < std::abs(b - median);
    });
    return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count),
                           0.0) /
           static_cast<double>(count);
  });
}

// The rank of least Krum score among `ranks`, each scored by its `neighbours` nearest.
inline size_t krum_choice(const Rows& rows, const std::vector<size_t>& ranks, size_t neighbours) {
  size_t best = ranks[0];
  double least = std::numeric_limits<double>::infinity();
  for (const size_t rank : ranks) {
    Row distances;
    for (const size_t other : ranks)
      if (other != rank) distances.push_back(square_distance_of(rows[rank], rows[other]));
    std::sort(distances.begin(), distances.end());
    double score = 0;
    for (size_t i = 0; i < neighbours; ++i) score += distances[i];
    if (score < least) {
      best = rank;
      least = score;
    }
  }
  return best;
}

inline std::vector<size_t> all_ranks(const Rows& rows) {
  std::vector<size_t> all(rows.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

inline Row multi_krum_oracle(const Rows& rows, size_t f, size_t m) {
  std::vector<std::pair<double, size_t>> scores;
  for (const size_t rank : all_ranks(rows)) {
    Row distances;
    for (const size_t other : all_ranks(rows))
      if (other != rank) distances.push_back(square_distance_of(rows[rank], rows[other]));
    std::sort(distances.begin(), distances.end());
    scores.emplace_back(std::accumulate(distances.begin(),
                                        distances.end() - static_cast<std::ptrdiff_t>(f + 1), 0.0),
                        rank);
  }
  std::sort(scores.begin(), scores.end());
  std::vector<size_t> best;
  for (size_t i = 0; i < m; ++i) best.push_back(scores[i].second);
  return mean_of(rows, best);
}

inline Row bulyan_oracle(const Rows& rows, size_t f) {
  std::vector<size_t> left = all_ranks(rows);
  Rows chosen;
  while (chosen.size() < rows.size() - 2 * f) {
    const auto r = static_cast<std::ptrdiff_t>(left.size()),
               wanted = r - static_cast<std::ptrdiff_t>(f) - 2;
    const size_t best = krum_choice(
        rows, left, static_cast<size_t>(std::min(std::max<std::ptrdiff_t>(wanted, 1), r - 1)));
    chosen.push_back(rows[best]);
    std::erase(left, best);
  }
  return mean_around_median_oracle(chosen, chosen.size() - 2 * f);
}

// All sets of n - f ranks in the order of their ranks; the first of the least diameter.
inline Row mda_oracle(const Rows& rows, size_t f) {
  std::vector<bool> in(rows.size(), false);
  std::fill(in.begin(), in.end() - static_cast<std::ptrdiff_t>(f), true);
  std::vector<size_t> best;
  double least = std::numeric_limits<double>::infinity();
  do {
    std::vector<size_t> ranks;
    for (const size_t rank : all_ranks(rows))
      if (in[rank]) ranks.push_back(rank);
    double diameter = 0;
    for (const size_t a : ranks)
      for (const size_t b : ranks)
        diameter = std::max(diameter, square_distance_of(rows[a], rows[b]));
    if (best.empty() || diameter < least) {
      best = ranks;
      least = diameter;
    }
  } while (std::prev_permutation(in.begin(), in.end()));
  return mean_of(rows, best);
}

// Weiszfeld's iteration on the vectors themselves, from their mean, until nothing moves any more.
inline Row geometric_median_oracle(const Rows& rows, double nu) {
  Row z = mean_of(rows, all_ranks(rows));
  for (int round = 0; round < 200'000; ++round) {
    Row next(z.size());
    double sum = 0;
    for (const Row& row : rows) {
      const double weight = 1 / std::max(nu, std::sqrt(square_distance_of(z, row)));
      sum += weight;
      for (size_t i = 0; i < z.size(); ++i) next[i] += weight * row[i];
    }
    for (double& x : next) x /= sum;
    const double moved = square_distance_of(next, z);
    z = next;
    if (moved <= 1e-30) break;
  }
  return z;
}

// From `v`, the last result.
inline Row centred_clipping_oracle(const Rows& rows, double tau, int iterations, Row v) {
  for (int round = 0; round < iterations; ++round) {
    Row next = v;
    for (const Row& row : rows) {
      const double distance = std::sqrt(square_distance_of(row, v));
      const double share = std::min(1.0, tau / distance) / static_cast<double>(rows.size());
      for (size_t i = 0; i < v.size(); ++i) next[i] += share * (row[i] - v[i]);
    }
    v = next;
  }
  return v;
}

using Matrix = std::vector<Row>;

inline Matrix times(const Matrix& a, const Matrix& b) {
  Matrix product(a.size(), Row(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < a.size(); ++k)
      for (size_t j = 0; j < a.size(); ++j) product[i][j] += a[i][k] * b[k][j];
  return product;
}

inline double trace(const Matrix& a) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i][i];
  return sum;
}

// The largest eigenvalue of the covariance of rows that count `counts`, and the squares of their
// parts along its eigenvector, by squaring the matrix of products until one direction is left.
inline std::pair<double, Row> spread_oracle(const Rows& rows, const Row& counts) {
  const size_t n = rows.size(), d = rows[0].size();
  const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  Row mean(d);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < d; ++j) mean[j] += counts[i] / sum * rows[i][j];
  Rows away = rows;
  for (Row& row : away)
    for (size_t j = 0; j < d; ++j) row[j] -= mean[j];
  Matrix gram(n, Row(n));
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b)
      gram[a][b] = std::sqrt(counts[a] * counts[b]) / sum *
                   std::inner_product(away[a].begin(), away[a].end(), away[b].begin(), 0.0);
  if (trace(gram) <= 0) return {0.0, Row(n)};
  Matrix power = gram;
  for (int round = 0; round < 40; ++round) {
    const double scale = trace(power);
    for (Row& row : power)
      for (double& x : row) x /= scale;
    power = times(power, power);
  }
  size_t column = 0;
  for (size_t i = 1; i < n; ++i)
    if (power[i][i] > power[column][column]) column = i;
  Row direction(d), squares;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < d; ++j)
      direction[j] += power[i][column] * std::sqrt(counts[i]) * away[i][j];
  for (const Row& row : away) {
    const double along = std::inner_product(row.begin(), row.end(), direction.begin(), 0.0);
    squares.push_back(along * along);
  }
  return {trace(times(gram, power)) / trace(power), squares};
}

inline Row caf_oracle(const Rows& rows, size_t f) {
  Rows left = rows;
  Row counts(rows.size(), 1.0), best = mean_of(rows, all_ranks(rows));
  double least = std::numeric_limits<double>::infinity();
  const auto sum = [&] { return std::accumulate(counts.begin(), counts.end(), 0.0); };
  while (f > 0 && sum() > static_cast<double>(rows.size() - 2 * f)) {
    const auto [value, squares] = spread_oracle(left, counts);
    if (value < least) {
      least = value;
      best.assign(best.size(), 0.0);
      for (size_t i = 0; i < left.size(); ++i)
        for (size_t j = 0; j < best.size(); ++j) best[j] += counts[i] / sum() * left[i][j];
    }
    const double most = *std::max_element(squares.begin(), squares.end());
    if (most <= 0) break;
    Rows staying;
    Row counts_of_these;
    for (size_t i = 0; i < left.size(); ++i) {
      if (squares[i] > most * (1 - 1e-9)) continue;  // equal vectors go together
      staying.push_back(left[i]);
      counts_of_these.push_back(counts[i] * (1 - squares[i] / most));
    }
    left = staying;
    counts = counts_of_these;
  }
  return best;
}

// All sets of n - f ranks in the order of their ranks; the first whose covariance is least.
inline Row smea_oracle(const Rows& rows, size_t f) {
  std::vector<bool> in(rows.size(), false);
  std::fill(in.begin(), in.end() - static_cast<std::ptrdiff_t>(f), true);
  std::vector<size_t> best;
  double least = std::numeric_limits<double>::infinity();
  do {
    std::vector<size_t> ranks;
    Rows chosen;
    for (const size_t rank : all_ranks(rows))
      if (in[rank]) {
        ranks.push_back(rank);
        chosen.push_back(rows[rank]);
      }
    const double value = spread_oracle(chosen, Row(chosen.size(), 1.0)).first;
    if (best.empty() || value < least * (1 - 1e-12)) {
      best = ranks;
      least = value;
    }
  } while (std::prev_permutation(in.begin(), in.end()));
  return mean_of(rows, best);
}

// `before` is the median of the last step; empty in the first.
inline Row licm_oracle(const Rows& rows, double gamma, const Row& before) {
  const Row median = median_oracle(rows);
  std::vector<size_t> stay;
  for (const size_t rank : all_ranks(rows)) {
    bool stays = !before.empty();
    for (size_t i = 0; i < before.size(); ++i)
      stays &= std::abs(rows[rank][i] - before[i]) <= gamma * std::abs(median[i] - before[i]);
    if (stays) stay.push_back(rank);
  }
  return stay.empty() ? median : mean_of(rows, stay);
}

// Each row becomes the mean of the n - f rows that are nearest to it; of equal distances the lower
// rank.
inline Rows nnm_oracle(const Rows& rows, size_t f) {
  Rows mixed;
  for (const size_t rank : all_ranks(rows)) {
    std::vector<size_t> order = all_ranks(rows);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return square_distance_of(rows[rank], rows[a]) < square_distance_of(rows[rank], rows[b]);
    });
    order.resize(rows.size() - f);
    std::sort(order.begin(), order.end());
    mixed.push_back(mean_of(rows, order));
  }
  return mixed;
}

inline Rows clip_oracle(Rows rows, double norm) {
  for (Row& row : rows) {
    const double length = std::sqrt(square_distance_of(row, Row(row.size())));
    for (double& x : row) x *= std::min(1.0, norm / length);
  }
  return rows;
}

// A rule and what it should give.
struct RuleOracle {
  std::string text;
  std::function<Row(const Rows&)> of;
};

// Every rule for n ranks, with every f that it allows, as it is in the first step. Not cge, whose
// sets are its own test's.
inline std::vector<RuleOracle> rule_oracles(size_t n) {
  std::vector<RuleOracle> rules{
      {"median", median_oracle},
      {"geometric_median", [](const Rows& rows) { return geometric_median_oracle(rows, 1e-6); }},
      {"centred_clipping:tau=2,iterations=3",
       [](const Rows& rows) { return centred_clipping_oracle(rows, 2, 3, Row(rows[0].size())); }}};
  const auto with_f = [](const char* name, size_t f) {
    return std::string(name) + ":f=" + std::to_string(f);
  };
  for (size_t f = 0; 2 * f + 1 <= n; ++f) {
    rules.push_back({with_f("trimmed_mean", f),
                     [f](const Rows& rows) { return trimmed_mean_oracle(rows, f); }});
    rules.push_back({with_f("mean_around_median", f), [f](const Rows& rows) {
                       return mean_around_median_oracle(rows, rows.size() - f);
                     }});
    rules.push_back({with_f("mda", f), [f](const Rows& rows) { return mda_oracle(rows, f); }});
    rules.push_back({with_f("caf", f), [f](const Rows& rows) { return caf_oracle(rows, f); }});
    if (f <= 3)  // others take long
      rules.push_back({with_f("smea", f), [f](const Rows& rows) { return smea_oracle(rows, f); }});
  }
  for (size_t f = 0; 2 * f + 3 <= n; ++f)
    rules.push_back({with_f("multi_krum", f), [f](const Rows& rows) {
                       return multi_krum_oracle(rows, f, rows.size() - f);
                     }});
  for (size_t f = 0; 4 * f + 3 <= n; ++f)
    rules.push_back(
        {with_f("bulyan", f), [f](const Rows& rows) { return bulyan_oracle(rows, f); }});
  // After a mix, which may leave equal rows: values that differ by rounding alone are then equally
  // near a median, so that the rules that ask for the nearest have no one result.
  const std::vector<RuleOracle> alone = rules;
  for (const auto& [text, of] : alone) {
    if (text.starts_with("mean_around_median") || text.starts_with("bulyan")) continue;
    const size_t f = n / 3;
    rules.push_back({with_f("nnm", f) + " then " + text,
                     [f, of = of](const Rows& rows) { return of(nnm_oracle(rows, f)); }});
    rules.push_back({"clip:norm=2 then " + text,
                     [of = of](const Rows& rows) { return of(clip_oracle(rows, 2)); }});
  }
  rules.push_back({with_f("nnm", n / 3) + " then clip:norm=2 then median", [n](const Rows& rows) {
                     return median_oracle(clip_oracle(nnm_oracle(rows, n / 3), 2));
                   }});
  rules.push_back({"licm", median_oracle});  // no mix can stand before it
  return rules;
}

}  // namespace thinwire::testing
