// probe_link: a ring in which every rank sends while it receives, with messages that grow.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <limits>

#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

constexpr int kTag = 1;
constexpr int kSmallRounds = 16;
constexpr size_t kFirstBytes = size_t{1} << 14;  // beyond it, buffers of the sender's kernel
constexpr size_t kLargestBytes = size_t{1} << 24;
constexpr double kUnlimited = 1e11;  // bits per second: memory of the same machine

class Ring {
 public:
  explicit Ring(Group& group) : group_(group) {}

  // Seconds of one round, of the rank that needs longest; the same on all ranks.
  double round(size_t bytes) {
    const int n = group_.size(), rank = group_.rank();
    out_.resize(bytes);
    in_.resize(bytes);
    group_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    const std::unique_ptr<Transfer> transfers[] = {group_.receive(in_, (rank + n - 1) % n, kTag),
                                                   group_.send(out_, (rank + 1) % n, kTag)};
    group_.wait(transfers);
    const auto spent = std::chrono::steady_clock::now() - begin;
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
    return 1e-9 * static_cast<double>(group_.max(static_cast<uint64_t>(nanoseconds)));
  }

 private:
  Group& group_;
  std::vector<std::byte> out_, in_;
};

}  // namespace

// Twice the bytes need at most four times the time of the round before, with which an end is planned.
LinkSpec probe_link(Group& group, double seconds) {
  if (group.size() == 1) return {};
  Ring ring(group);
  double latency = std::numeric_limits<double>::infinity(), spent = 0;
  for (int i = 0; i < kSmallRounds && spent < seconds / 4; ++i) {
    const double small = ring.round(1);
    latency = std::min(latency, small);
    spent += small;
  }
  double rate = 0, last = 0;
  for (size_t bytes = kFirstBytes; bytes <= kLargestBytes; bytes *= 2) {
    if (bytes > kFirstBytes && spent + 2 * last > seconds) break;
    last = ring.round(bytes);
    spent += last;
    const double wire = std::max(last - latency, last / 2);
    const LinkSpec at_one_bit{.bits_per_second = 1, .latency_seconds = 0};
    rate = at_one_bit.seconds_for(static_cast<double>(bytes)) / wire;
  }
  return {.bits_per_second = rate >= kUnlimited ? 0 : rate, .latency_seconds = latency};
}

}  // namespace thinwire
