// Lists are made of the shortest one before that holds all they need, as the stages go up.
// SPDX-License-Identifier: Apache-2.0
#include "codec/device_tail_estimator.h"

#include "device/selection_kernels.h"

namespace thinwire {

void DeviceTailEstimator::forget_lists() noexcept {
  for (List& list : lists_) list.threshold.reset();
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

// Null if it has more than `limit` entries.
const DeviceTailEstimator::List* DeviceTailEstimator::list_above(float threshold, size_t limit) {
  const List* const from = shortest_list(threshold);
  if (from != nullptr && *from->threshold == threshold) return from->size > limit ? nullptr : from;
  const auto source = from != nullptr ? from->values() : values();
  auto* const tiles = work_->room<uint64_t>(device::tile_room(source.size()));
  auto* const found = work_->room<uint64_t>(1);
  device::count_above(work_->launcher(), source.data(), source.size(), threshold, tiles, found);
  const size_t size = work_->fetch(found);
  if (size > limit) return nullptr;
  // The first serves all stages, the others the stages that follow each other.
  List& to = !lists_[0].threshold ? lists_[0] : from == &lists_[1] ? lists_[2] : lists_[1];
  if (to.memory == nullptr || to.memory->values().size() < size) {
    to.memory.reset();
    to.memory = std::make_unique<device::DeviceFloats>(work_, size + size / 4);
  }
  to.threshold = threshold;
  to.size = size;
  device::write_above(work_->launcher(), source.data(), source.size(), threshold, size, tiles,
                      nullptr, to.memory->values().data(), nullptr);
  return &to;
}

kernel::TailMoments DeviceTailEstimator::tail(float threshold) {
  work_->begin();
  return tail_of(values(), threshold);
}

kernel::TailMoments DeviceTailEstimator::tail_of_list(float threshold) {
  work_->begin();
  return tail_of(list_above(threshold, values().size())->values(), threshold);
}

bool DeviceTailEstimator::collect(float threshold, ExceedanceList& /*list*/) {
  work_->begin();
  list_above(threshold, list_limit());
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
  const auto source = from != nullptr ? from->values() : values();
  auto* const tiles = work_->room<uint64_t>(device::tile_room(source.size()));
  auto* const found = work_->room<uint64_t>(1);
  device::count_above(work_->launcher(), source.data(), source.size(), threshold, tiles, found);
  return work_->fetch(found);
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
