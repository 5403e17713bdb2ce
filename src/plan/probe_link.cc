// probe_link: every rank sends to one while it receives from another.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "plan/find_link.h"

namespace thinwire {
namespace {

constexpr int kTag = 1;

// Messages go half of all ranks further on, and then to the next rank. Where machines have equally
// many consecutive ranks, the first way leads to another machine from everywhere, so that ranks
// share their machine's link as they do in an exchange. Where ranks were dealt out to machines in
// turn, the second does.
class Crossing {
 public:
  explicit Crossing(Group& group) : group_(group) {
    if (ways_among(group.size()) > 1) shifts_.push_back(1);
    group.barrier();
  }

  // Of the rank that needs longest; the same on all ranks.
  MessageRound round(size_t bytes) {
    out_.resize(bytes);
    in_.resize(bytes);
    MessageRound round;
    for (const int shift : shifts_) {
      const double seconds = round_by(shift);
      round.slower = std::max(round.slower, seconds);
      round.by_all += seconds;
    }
    return round;
  }

 private:
  // All ranks leave the agreement on one message together, so that they begin the next one
  // together, too.
  double round_by(int shift) {
    const int n = group_.size(), rank = group_.rank();
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
};

}  // namespace

ProbedLink probe_link(Group& group, double seconds, const std::optional<LinkSpec>& known) {
  if (group.size() == 1) return {};
  Crossing crossing(group);
  return find_link(group.size(), seconds, known,
                   [&](size_t bytes) { return crossing.round(bytes); });
}

}  // namespace thinwire
