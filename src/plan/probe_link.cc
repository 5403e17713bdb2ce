// probe_link: every rank sends to one while it receives from another, with messages that grow.
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

// Messages go half of all ranks further on, and then to the next rank. Where machines have equally
// many consecutive ranks, the first way leads to another machine from everywhere, so that ranks
// share their machine's link as they do in an exchange. Where ranks were dealt out to machines in
// turn, the second does.
class Crossing {
 public:
  explicit Crossing(Group& group) : group_(group) {
    if (group.size() > 3) shifts_.push_back(1);
  }

  // Seconds of one round by the slower way, of the rank that needs longest; the same on all ranks.
  double round(size_t bytes) {
    out_.resize(bytes);
    in_.resize(bytes);
    double slower = 0;
    for (const int shift : shifts_) {
      const double seconds = round_by(shift);
      slower = std::max(slower, seconds);
      spent_ += seconds;
    }
    return slower;
  }

  double spent() const { return spent_; }

 private:
  double round_by(int shift) {
    const int n = group_.size(), rank = group_.rank();
    group_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    const std::unique_ptr<Transfer> transfers[] = {
        group_.receive(in_, (rank + n - shift) % n, kTag),
        group_.send(out_, (rank + shift) % n, kTag)};
    group_.wait(transfers);
    const auto spent = std::chrono::steady_clock::now() - begin;
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
    return 1e-9 * static_cast<double>(group_.max(static_cast<uint64_t>(nanoseconds)));
  }

  Group& group_;
  std::vector<int> shifts_ = {group_.size() / 2};
  std::vector<std::byte> out_, in_;
  double spent_ = 0;
};

}  // namespace

// Twice the bytes need at most four times the time of the round before, with which an end is
// planned.
LinkSpec probe_link(Group& group, double seconds) {
  if (group.size() == 1) return {};
  Crossing crossing(group);
  double latency = std::numeric_limits<double>::infinity();
  for (int i = 0; i == 0 || (i < kSmallRounds && crossing.spent() < seconds / 4); ++i)
    latency = std::min(latency, crossing.round(1));
  double rate = 0, both_ways = 0;  // seconds of the latest round
  for (size_t bytes = kFirstBytes; bytes <= kLargestBytes; bytes *= 2) {
    const double before = crossing.spent();
    if (bytes > kFirstBytes && before + 2 * both_ways > seconds) break;
    const double last = crossing.round(bytes);
    both_ways = crossing.spent() - before;
    const double wire = std::max(last - latency, last / 2);
    const LinkSpec at_one_bit{.bits_per_second = 1, .latency_seconds = 0};
    rate = at_one_bit.seconds_for(static_cast<double>(bytes)) / wire;
  }
  return {.bits_per_second = rate >= kUnlimited ? 0 : rate, .latency_seconds = latency};
}

}  // namespace thinwire
