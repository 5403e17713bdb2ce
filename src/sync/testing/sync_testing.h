// For tests of synchronisers: a noisy quadratic, and one worker that trains on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "thinwire/synchroniser.h"

namespace thinwire::testing {

// Three tensors of odd sizes, one of them of a kind that exchanges leave uncompressed.
inline std::vector<TensorSpec> vector_model() {
  return {{"first.weight", {9, 5}, TensorKind::kLinear},
          {"first.bias", {5}, TensorKind::kBias},
          {"second.weight", {3, 4, 5}, TensorKind::kConvolution}};
}
inline constexpr size_t kModelSize = 45 + 5 + 60;

// f(x) = 1/2 sum of a (x - 1)^2 with a between 0.5 and 1.5. Batch `step` of `rank` sees the minimum
// at 1 + noise. Twice: in float as a worker computes, in double as an oracle does.
struct Quadratic {
  double noise = 0.3;

  double target(int rank, uint64_t step, size_t i) const {
    const RandomKey key{
        .seed = 5, .use = RandomUse::kTest, .step = step, .stream = static_cast<uint32_t>(rank)};
    return 1 + noise * static_cast<double>(random_normal(key, i));
  }
  static double curvature(size_t i) { return 0.5 + static_cast<double>(i % 11) / 10; }

  // The batch's loss; `gradient` receives its gradient.
  template <typename T>
  double loss(std::span<const T> x, int rank, uint64_t step, std::span<T> gradient) const {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double a = curvature(i), away = static_cast<double>(x[i]) - target(rank, step, i);
      sum += a * away * away / 2;
      gradient[i] = static_cast<T>(a * away);
    }
    return sum / static_cast<double>(x.size());
  }
};

// Where everybody begins: away from the minimum, no two values alike.
template <typename T = float>
std::vector<T> start_values(size_t count = kModelSize) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(static_cast<float>(-0.5 + 0.01 * static_cast<double>(i % 37)));
  return values;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// All ranks' vectors of equal length, in rank order.
template <typename T>
std::vector<std::vector<T>> gather(Group& group, std::span<const T> mine) {
  std::vector<T> all(mine.size() * static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span(all)));
  std::vector<std::vector<T>> parts;
  for (size_t at = 0; at < all.size(); at += mine.size())
    parts.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(at),
                       all.begin() + static_cast<std::ptrdiff_t>(at + mine.size()));
  return parts;
}

// Plain SGD and a synchroniser.
class Worker {
 public:
  Worker(Group& group, const SynchroniserOptions& options,
         std::shared_ptr<Store> store = std::make_shared<Store>())
      : rank_(group.rank()),
        store_(std::move(store)),
        x(start_values()),
        sync_(make_synchroniser(group, *store_, vector_model(), x, options)) {}

  std::optional<RoundReport> step() {
    std::vector<float> gradient(x.size());
    const double loss = problem.loss<float>(x, rank_, steps_++, gradient);
    if (sync_->adjusts_gradient()) sync_->adjust_gradient(x, gradient);
    for (size_t i = 0; i < x.size(); ++i) x[i] -= rate * gradient[i];
    return sync_->after_step(x, reported ? reported(loss) : loss);
  }

  Synchroniser& sync() { return *sync_; }
  Store& store() { return *store_; }
  void continue_at(uint64_t step) { steps_ = step; }

 private:
  int rank_;
  std::shared_ptr<Store> store_;
  uint64_t steps_ = 0;

 public:
  Quadratic problem;
  float rate = 0.1f;
  std::function<double(double loss)> reported;  // what the synchroniser is told
  std::vector<float> x;

 private:
  std::unique_ptr<Synchroniser> sync_;
};

}  // namespace thinwire::testing
