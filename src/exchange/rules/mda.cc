// mda: minimum-diameter averaging [Rousseeuw, 1985; El Mhamdi et al., NeurIPS 2021].
//
//   result = the mean of the n - f ranks among which the largest distance is least
//
// Of several such sets it takes the one that comes first when their ranks are listed in order. It
// needs n >= 2 f + 1, and f <= 16. Statistics: squared distances of pairs.
//
// There are too many sets to try them all. A set of diameter D or less is what remains if, of every
// pair that is farther apart than D, one rank at least is left out. Whether f ranks are enough for
// that is found by branching on the rank r with the most such pairs, of which there are k > 1:
// either r is left out, or all k others are. This is at most 1.62^f branches. The least D is found
// by bisection among the distances.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "exchange/rules/vector_rule.h"

namespace thinwire {
namespace {

// Ranks that must stay, may stay, and are left out.
enum class Place : uint8_t { kStays, kOpen, kOut };
using Places = std::vector<Place>;

class Search {
 public:
  Search(const PairTable& distances, double diameter)
      : distances_(distances), diameter_(diameter) {}

  bool apart(size_t a, size_t b) const noexcept { return distances_.at(a, b) > diameter_; }

  // Leaves out what cannot stay together with `rank`; returns how many these are.
  size_t keep(size_t rank, Places& places) const {
    size_t out = 0;
    places[rank] = Place::kStays;
    for (size_t other = 0; other < places.size(); ++other)
      if (places[other] == Place::kOpen && apart(rank, other)) {
        places[other] = Place::kOut;
        ++out;
      }
    return out;
  }

  // Whether leaving out `spare` of the open ranks at most is enough.
  bool is_enough(Places places, size_t spare) const {
    size_t worst = 0, most = 0, pairs = 0;
    for (size_t a = 0; a < places.size(); ++a) {
      size_t count = 0;
      for (size_t b = 0; b < places.size() && places[a] == Place::kOpen; ++b)
        count += places[b] == Place::kOpen && apart(a, b);
      pairs += count;
      if (count > most) worst = a, most = count;
    }
    pairs /= 2;
    if (most < 2) return pairs <= spare;  // no two pairs share a rank
    if (spare == 0 || pairs > spare * most) return false;
    Places without = places;
    without[worst] = Place::kOut;
    if (is_enough(std::move(without), spare - 1)) return true;
    const size_t out = keep(worst, places);
    return out <= spare && is_enough(std::move(places), spare - out);
  }

 private:
  const PairTable& distances_;
  const double diameter_;
};

class Mda final : public VectorRule {
 public:
  explicit Mda(size_t f) : f_(f) {}

  LeastRanks least_ranks() const noexcept override { return {2 * f_ + 1, "2 f + 1"}; }
  size_t tolerates(size_t /*ranks*/) const noexcept override { return f_; }
  RowStatistics decides_by() const noexcept override { return RowStatistics::kSquareDistances; }

  void weigh(std::span<const double> statistics, const RuleCall& /*call*/,
             std::span<float> row_weights) const override {
    const size_t ranks = row_weights.size();
    const PairTable distances = square_distances(statistics, ranks);
    std::vector<double> diameters = {0.0};
    for (size_t a = 0; a < ranks; ++a)
      for (size_t b = a + 1; b < ranks; ++b) diameters.push_back(distances.at(a, b));
    std::sort(diameters.begin(), diameters.end());
    const auto least =
        std::partition_point(diameters.begin(), diameters.end() - 1, [&](double diameter) {
          return !Search(distances, diameter).is_enough(Places(ranks, Place::kOpen), f_);
        });
    choose_first(Search(distances, *least), row_weights);
  }

 private:
  // Keeps rank after rank, where enough others can be kept with it.
  void choose_first(const Search& search, std::span<float> row_weights) const {
    const size_t ranks = row_weights.size();
    Places places(ranks, Place::kOpen);
    size_t spare = f_, kept = 0;
    std::fill(row_weights.begin(), row_weights.end(), 0.0f);
    for (size_t rank = 0; rank < ranks && kept < ranks - f_; ++rank) {
      if (places[rank] == Place::kOut) continue;
      Places with = places;
      const size_t out = search.keep(rank, with);
      if (out <= spare && search.is_enough(with, spare - out)) {
        places = std::move(with);
        spare -= out;
        row_weights[rank] = 1.0f / static_cast<float>(ranks - f_);
        ++kept;
      } else {
        places[rank] = Place::kOut;
        --spare;
      }
    }
  }

  const size_t f_;
};

}  // namespace

extern const CombineEntry kMda{
    .name = "mda",
    .summary = "the mean of the n - f ranks whose contributions have the least diameter",
    .options = {faulty_ranks_option("ranks that are left out", 16)},
    .make = [](const Options& options) -> std::shared_ptr<const Combine> {
      return std::make_shared<Mda>(static_cast<size_t>(options.integer("f")));
    }};

}  // namespace thinwire
