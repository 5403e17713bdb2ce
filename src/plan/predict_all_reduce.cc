// predict_all_reduce: the buckets of DistributedDataParallel, and a ring for each.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <string>

#include "plan/step_limit.h"
#include "plan/step_play.h"
#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

constexpr double kMiB = 1 << 20;
// Gloo has two parts of a bucket on their way at a time, so that one is added up while the other is
// sent.
constexpr size_t kParts = 2;

struct RingBucket {
  double bytes = 0;
  double ready_seconds = 0;
};

// A bucket is closed by the tensor with which it reaches its limit.
std::vector<RingBucket> buckets_of(const StepTimeline& timeline) {
  std::vector<size_t> order(timeline.tensors.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return timeline.ready_seconds[a] < timeline.ready_seconds[b];
  });
  std::vector<RingBucket> buckets(1);
  double limit = kMiB;
  for (const size_t tensor : order) {
    if (buckets.back().bytes >= limit) {
      limit = 25 * kMiB;
      buckets.emplace_back();
    }
    buckets.back().bytes += 4.0 * static_cast<double>(timeline.tensors[tensor].count());
    buckets.back().ready_seconds = timeline.ready_seconds[tensor];
  }
  return buckets;
}

}  // namespace

Result<StepPrediction> predict_all_reduce(const StepTimeline& timeline, const PlanRequest& request,
                                          const AllReduceCost& cost) {
  if (Status status = check_timeline(timeline); !status) return status;
  if (request.ranks < 1)
    return Status::fail(ErrorCode::kBadOption,
                        "plan: ranks must be at least 1, not " + std::to_string(request.ranks));
  if (Status status = check_machines(request); !status) return status;
  const std::vector<RingBucket> buckets = buckets_of(timeline);
  const auto ranks = static_cast<size_t>(request.ranks);
  const double n = static_cast<double>(ranks);
  std::vector<double> times;
  std::vector<Move> moves;
  double sent = 0;
  for (const RingBucket& bucket : buckets) {
    const double message = bucket.bytes / n / kParts;
    const Leg leg{.encode_seconds = cost.seconds_per_message + message * cost.seconds_per_byte,
                  .sent = message,
                  .received = message};
    for (size_t part = 0; ranks > 1 && part < kParts; ++part)
      moves.push_back({.bucket = times.size(),
                       .after = moves.size() < kParts ? std::vector<size_t>()
                                                      : std::vector<size_t>{moves.size() - kParts},
                       .legs = std::vector<Leg>(2 * (ranks - 1), leg)});
    times.push_back(bucket.ready_seconds);
    sent += 2 * (n - 1) / n * bucket.bytes;
  }
  const auto play = [&](const PlanRequest& at, bool free_coding) {
    std::vector<Move> played = moves;
    for (Move& move : played)
      for (Leg& one : move.legs)
        if (free_coding) one.encode_seconds = 0;
    const LinkSpec link = at.per_machine == at.ranks ? at.inside : at.link;
    Played step = play_step(played, times, timeline.backward_seconds,
                            {.between = link, .inside = {}, .inside_share = 0}, at.own_core);
    step.seconds += timeline.compute_seconds - timeline.backward_seconds;
    return step;
  };
  const Played step = play(request, false);
  StepPrediction prediction;
  prediction.method = "all-reduce";
  prediction.seconds = prediction.longest_seconds = step.seconds;
  prediction.compute_seconds = timeline.compute_seconds;
  prediction.encode_seconds = step.encode_seconds;
  prediction.wire_seconds = step.wire_seconds;
  prediction.limit =
      limit_of([&](const PlanRequest& at, bool free) { return play(at, free).seconds; }, request,
               step.seconds, timeline.compute_seconds);
  prediction.sent_bytes.assign(ranks, sent);
  // The last rank of a machine sends to the next machine.
  for (int rank = 1; rank <= request.ranks; ++rank)
    prediction.inside_bytes.push_back(
        rank % request.per_machine == 0 && request.per_machine < request.ranks ? 0 : sent);
  return prediction;
}

}  // namespace thinwire
