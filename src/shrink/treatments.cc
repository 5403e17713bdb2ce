// The ladder of treatments, and the search on it: bisection, then a greedy descent.
// SPDX-License-Identifier: Apache-2.0
#include "shrink/treatments.h"

#include <algorithm>
#include <numeric>

namespace thinwire {
namespace {

// A thousandth is kept from 5 bits down: outliers would otherwise widen the outer clusters.
constexpr Treatment kTreatments[] = {
    {},
    {.bits = 8},
    {.bits = 7},
    {.bits = 6},
    {.bits = 5, .prune = 0.05, .keep = 0.001},
    {.bits = 4, .prune = 0.1, .keep = 0.001},
    {.bits = 4, .prune = 0.25, .keep = 0.001},
    {.bits = 3, .prune = 0.25, .keep = 0.001},
    {.bits = 3, .prune = 0.4, .keep = 0.001},
    {.bits = 3, .prune = 0.55, .keep = 0.001},
    {.bits = 2, .prune = 0.55, .keep = 0.001},
    {.bits = 2, .prune = 0.7, .keep = 0.001},
    {.bits = 2, .prune = 0.8, .keep = 0.001},
    {.bits = 2, .prune = 0.9, .keep = 0.001},
    {.bits = 1, .prune = 0.95, .keep = 0.001},
};

class Searcher {
 public:
  Searcher(const SettingSearch& search, const std::function<bool(const Setting&)>& fits)
      : search_(search), fits_(fits), current_(search.sizes.size(), 0) {}

  FoundSetting find() {
    if (search_.start.empty())
      bisect();
    else
      step_back();
    for (const size_t step :
         search_.start.empty() ? std::vector<size_t>{4, 2, 1} : std::vector<size_t>{1})
      descend(step);
    return {.setting = current_, .trials = trials_};
  }

 private:
  // Takes the setting if it fits. A setting of zeros is not measured.
  bool take(const Setting& setting) {
    const bool exact = std::all_of(setting.begin(), setting.end(), [](size_t t) { return t == 0; });
    if (!exact) {
      if (trials_ == search_.trials) return false;
      ++trials_;
      if (!fits_(setting)) return false;
    }
    current_ = setting;
    return true;
  }

  void bisect() {
    size_t fits = 0, fails = search_.treatments;
    while (fails - fits > 1) {
      const size_t middle = (fits + fails) / 2;
      (take(Setting(current_.size(), middle)) ? fits : fails) = middle;
    }
  }

  void step_back() {
    Setting setting = search_.start;
    bool fails = search_.start_fails;
    for (size_t step = 1; fails || !take(setting); step *= 2) {
      for (size_t& treatment : setting) treatment -= std::min(treatment, step);
      fails = false;
    }
  }

  // A group that bears no step is not asked again in this round.
  void descend(size_t step) {
    std::vector<size_t> order(current_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return search_.sizes[a] > search_.sizes[b]; });
    while (!order.empty()) {
      std::erase_if(order, [&](size_t group) {
        if (current_[group] + step >= search_.treatments || trials_ == search_.trials) return true;
        Setting setting = current_;
        setting[group] += step;
        return !take(setting);
      });
    }
  }

  const SettingSearch& search_;
  const std::function<bool(const Setting&)>& fits_;
  Setting current_;
  int trials_ = 0;
};

}  // namespace

std::span<const Treatment> treatments() { return kTreatments; }

FoundSetting find_setting(const SettingSearch& search,
                          const std::function<bool(const Setting&)>& fits) {
  return Searcher(search, fits).find();
}

}  // namespace thinwire
