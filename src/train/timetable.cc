// Timetable: the arithmetic of epochs, steps and parts of batches.
// SPDX-License-Identifier: Apache-2.0
#include "train/timetable.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "thinwire/status.h"

namespace thinwire {
namespace {

// Periods are whole steps, so that a test never falls between two.
uint64_t period(double epochs, uint64_t steps_per_epoch) {
  if (epochs == 0) return 0;
  const double steps = std::round(epochs * static_cast<double>(steps_per_epoch));
  return std::max<uint64_t>(1, static_cast<uint64_t>(steps));
}

bool due(uint64_t step, uint64_t period, uint64_t steps) {
  return step + 1 == steps || (period != 0 && (step + 1) % period == 0);
}

}  // namespace

SampleRange SampleRange::part(uint64_t index, uint64_t count) const noexcept {
  const uint64_t first = size * index / count, end = size * (index + 1) / count;
  return {.begin = begin + first, .size = end - first};
}

double Timetable::epoch(uint64_t step) const noexcept {
  return static_cast<double>(step) / static_cast<double>(steps_per_epoch);
}

SampleRange Timetable::batch_of(uint64_t step) const noexcept {
  const uint64_t begin = step % steps_per_epoch * batch;
  return {.begin = begin, .size = std::min(batch, samples - begin)};
}

uint64_t Timetable::samples_before(uint64_t step) const noexcept {
  return step / steps_per_epoch * samples + step % steps_per_epoch * batch;
}

bool Timetable::evaluates_after(uint64_t step) const noexcept {
  return due(step, evaluate_period, steps);
}

bool Timetable::checkpoints_after(uint64_t step) const noexcept {
  return due(step, checkpoint_period, steps);
}

uint64_t steps_of(double epochs, uint64_t steps_per_epoch) noexcept {
  constexpr double kRounding = 1e-12;  // 1.1 epochs of 100 steps are 110.00000000000001
  return static_cast<uint64_t>(
      std::ceil(epochs * static_cast<double>(steps_per_epoch) * (1 - kRounding)));
}

Timetable make_timetable(const Options& recipe, uint64_t samples) {
  if (samples == 0) throw Error(ErrorCode::kBadOption, "train: there are no samples to train on");
  Timetable timetable;
  timetable.available = samples;
  timetable.batch =
      std::min<uint64_t>(static_cast<uint64_t>(recipe.integer("train.batch")), samples);
  if (recipe.flag("train.drop_last")) samples -= samples % timetable.batch;
  timetable.samples = samples;
  timetable.steps_per_epoch = (samples + timetable.batch - 1) / timetable.batch;
  timetable.steps = steps_of(recipe.number("train.epochs"), timetable.steps_per_epoch);
  const auto most = static_cast<uint64_t>(recipe.integer("train.max_steps"));
  if (most != 0) timetable.steps = std::min(timetable.steps, most);
  timetable.evaluate_period =
      period(recipe.number("train.evaluate_every"), timetable.steps_per_epoch);
  timetable.checkpoint_period =
      period(recipe.number("train.checkpoint_every"), timetable.steps_per_epoch);
  return timetable;
}

Sampler::Sampler(const Options& recipe, const Timetable& timetable)
    : timetable_(timetable),
      seed_(static_cast<uint64_t>(recipe.integer("train.seed"))),
      fixed_batches_(recipe.flag("train.fixed_batches")) {}

std::span<const uint64_t> Sampler::ids(uint64_t step, SampleRange slice) {
  order_epoch(step / timetable_.steps_per_epoch);
  return std::span(order_).subspan(slice.begin, slice.size);
}

uint64_t Sampler::batch_id(uint64_t step) {
  order_epoch(step / timetable_.steps_per_epoch);
  return batches_.at(step % timetable_.steps_per_epoch);
}

void Sampler::order_epoch(uint64_t epoch) {
  if (epoch == epoch_) return;
  if (fixed_batches_) {
    order_batches(epoch);
  } else {
    order_ = random_permutation({.seed = seed_, .use = RandomUse::kShuffle, .step = epoch},
                                timetable_.available);
  }
  epoch_ = epoch;
}

// Batches are the runs of one permutation; a smaller last one stays last.
void Sampler::order_batches(uint64_t epoch) {
  constexpr uint32_t kOfSamples = 1, kOfBatches = 2;
  const std::vector<uint64_t> fixed = random_permutation(
      {.seed = seed_, .use = RandomUse::kShuffle, .step = 0, .stream = kOfSamples},
      timetable_.available);
  const uint64_t whole = timetable_.samples / timetable_.batch;
  batches_ = random_permutation(
      {.seed = seed_, .use = RandomUse::kShuffle, .step = epoch, .stream = kOfBatches}, whole);
  if (whole < timetable_.steps_per_epoch) batches_.push_back(whole);
  order_.clear();
  for (const uint64_t batch : batches_) {
    const SampleRange slice = timetable_.batch_of(batch);
    order_.insert(order_.end(), fixed.begin() + static_cast<int64_t>(slice.begin),
                  fixed.begin() + static_cast<int64_t>(slice.begin + slice.size));
  }
}

}  // namespace thinwire
