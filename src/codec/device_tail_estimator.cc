// Lists are made of the shortest one before that holds all they need, as the stages go up.
// SPDX-License-Identifier: Apache-2.0
#include "codec/device_tail_estimator.h"

#include "codec/device_sparse.h"
#include "device/selection_kernels.h"

namespace thinwire {

bool DeviceTailEstimator::begin(std::span<const float> values, const Moments& moments) {
  for (List& list : lists_) list.threshold.reset();
  return TailEstimator::begin(values, moments);
}

const DeviceTailEstimator::List* DeviceTailEstimator::shortest_list(
    float threshold) const noexcept {
  const List* shortest = nullptr;
  for (const List& list : lists_)
    if (list.threshold && *list.threshold <= threshold &&
        (shortest == nullptr || list.size < shortest->size))
      shortest = &list;
  return shortest;
}

const DeviceTailEstimator::List& DeviceTailEstimator::list_above(float threshold) {
  const List* const from = shortest_list(threshold);
  if (from != nullptr && *from->threshold == threshold) return *from;
  const auto source = from != nullptr ? from->values() : values();
  const DeviceExceeding exceeding = device_exceeding(*work_, source, threshold);
  // The first has the lowest threshold and serves every number of stages. Those that follow each
  // other in a stage alternate between the others, so that none is written while it is read.
  List& to = !lists_[0].threshold ? lists_[0] : from == &lists_[1] ? lists_[2] : lists_[1];
  if (to.memory == nullptr || to.memory->values().size() < exceeding.count) {
    to.memory.reset();
    to.memory =
        std::make_unique<device::DeviceFloats>(work_, exceeding.count + exceeding.count / 4);
  }
  to.threshold = threshold;
  to.size = exceeding.count;
  device::write_above(work_->launcher(), source.data(), source.size(), threshold, exceeding.count,
                      exceeding.tiles, nullptr, to.memory->values().data(), nullptr);
  return to;
}

kernel::TailMoments DeviceTailEstimator::tail(float threshold) {
  work_->begin();
  return tail_of(values(), threshold);
}

kernel::TailMoments DeviceTailEstimator::tail_of_list(float threshold) {
  work_->begin();
  return tail_of(list_above(threshold).values(), threshold);
}

bool DeviceTailEstimator::collect(float threshold, ExceedanceList& /*list*/) {
  work_->begin();
  list_above(threshold);
  work_->await();
  return false;
}

bool DeviceTailEstimator::collect_with_tail(float /*threshold*/, ExceedanceList& /*list*/,
                                            float /*tail_threshold*/,
                                            std::optional<kernel::TailMoments>& /*tail*/) {
  return false;
}

size_t DeviceTailEstimator::count_above(float threshold) {
  work_->begin();
  const List* const from = shortest_list(threshold);
  if (from != nullptr && *from->threshold == threshold) return from->size;
  return device_exceeding(*work_, from != nullptr ? from->values() : values(), threshold).count;
}

// The device multiplies; the few logarithms are the processor's.
double DeviceTailEstimator::log_sum(double guard, double unit) {
  work_->begin();
  const size_t whole = values().size() - values().size() % kernel::kLogLanes;
  chunks_.resize(device::log_chunks_of(whole));
  auto* const there = work_->room<kernel::LogChunk>(chunks_.size());
  device::log_chunks(work_->launcher(), values().data(), whole, guard, unit, there);
  work_->fetch(std::as_writable_bytes(std::span(chunks_)), there);
  kernel::LogTotal total;
  for (const kernel::LogChunk& chunk : chunks_) total.add(chunk);
  std::array<float, kernel::kLogLanes> last;
  const auto behind = std::span(last).first(values().size() - whole);
  work_->fetch(std::as_writable_bytes(behind), values().data() + whole);
  return total.sum(whole, behind, guard, unit);
}

kernel::TailMoments DeviceTailEstimator::tail_of(std::span<const float> list, float threshold) {
  auto* const entries = work_->room<device::TailEntry>(device::tail_entries(list.size()));
  device::tail_moments(work_->launcher(), list.data(), list.size(), threshold, largest(), entries);
  return device::tail_of(work_->fetch(entries), largest());
}

}  // namespace thinwire
