// predict_step: bytes of every rank, and the time of the one that sends most.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "plan/moves.h"
#include "plan/step_layout.h"
#include "plan/step_play.h"
#include "thinwire/step_plan.h"

namespace thinwire {
namespace {

std::string method_names(const StepLayout& layout) {
  std::string names;
  for (const LaidSection& section : layout.sections()) {
    const std::string_view name = section.method->name;
    if (names.find(name) == std::string::npos)
      names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

// A step's moves by the rank that has most to send, and their agreement at the end.
class Steps {
 public:
  Steps(const StepLayout& layout, const StepTimeline& timeline)
      : layout_(layout), timeline_(timeline), times_(bucket_times(layout.plan(), timeline)) {
    count_bytes();
    for (const uint64_t step : {0, 1}) {
      const bool rooted = std::any_of(
          samples_[step].moves.begin(), samples_[step].moves.end(), [](const Move& move) {
            return std::any_of(move.legs.begin(), move.legs.end(),
                               [](const Leg& leg) { return leg.from_root; });
          });
      if (!rooted) samples_[step] = moves_of(layout, busiest_, step);
    }
  }

  const std::vector<double>& sent() const { return sent_; }
  bool exact() const { return samples_[0].exact && samples_[1].exact; }

  // Means of an even and an odd step.
  Played play(const PlanRequest& request, bool free_coding = false) const {
    Played mean;
    for (const Moves& sample : samples_) {
      std::vector<Move> moves = sample.moves;
      for (Move& move : moves)
        for (Leg& leg : move.legs)
          if (free_coding) leg.encode_seconds = leg.decode_seconds = 0;
      const Played played = play_step(moves, times_, timeline_.backward_seconds, request);
      const double messages = agreement_bytes(layout_.ranks()) / sizeof(uint64_t);
      mean.seconds += (played.seconds + messages * request.link.latency_seconds) / 2;
      mean.encode_seconds += played.encode_seconds / 2;
      mean.decode_seconds += played.decode_seconds / 2;
      mean.wire_seconds += played.wire_seconds / 2;
    }
    mean.seconds += timeline_.compute_seconds - timeline_.backward_seconds;
    return mean;
  }

 private:
  static double sent_in(const Moves& moves) {
    double bytes = 0;
    for (const Move& move : moves.moves)
      for (const Leg& leg : move.legs) bytes += leg.sent;
    return bytes;
  }

  void count_bytes() {
    const size_t n = layout_.ranks();
    for (const uint64_t step : {0, 1}) samples_[step] = moves_of(layout_, root_of(step, n), step);
    for (size_t rank = 0; rank < n; ++rank)
      sent_.push_back(agreement_bytes(n) + (mean_sent(rank, 0) + mean_sent(rank, 1)) / 2);
    busiest_ = static_cast<size_t>(std::max_element(sent_.begin(), sent_.end()) - sent_.begin());
  }

  // Over the even or the odd ones of so many steps that each rank was the root as often as any other.
  // Steps of one parity differ by their roots alone.
  double mean_sent(size_t rank, uint64_t parity) const {
    const size_t n = layout_.ranks();
    const uint64_t other = root_of(parity, n) == rank ? parity + 2 : parity;
    const double usual = sent_in(moves_of(layout_, rank, other));
    if (n % 2 == 0 && rank % 2 != parity) return usual;  // never the root
    const double as_root = sent_in(moves_of(layout_, rank, rank % 2 == parity ? rank : rank + n));
    const auto steps = static_cast<double>(n % 2 == 0 ? n / 2 : n);
    return (usual * (steps - 1) + as_root) / steps;
  }

  const StepLayout& layout_;
  const StepTimeline& timeline_;
  const std::vector<double> times_;
  std::array<Moves, 2> samples_;  // of an even and of an odd step
  std::vector<double> sent_;
  size_t busiest_ = 0;
};

// What would shorten the step most if it cost nothing; the arithmetic, if that is all but 5 % of it.
StepLimit limit_of(const Steps& steps, const PlanRequest& request, double seconds, double compute) {
  if (seconds <= 1.05 * compute) return StepLimit::kComputation;
  PlanRequest wide = request, near = request;
  wide.link.bits_per_second = 0;
  near.link.latency_seconds = 0;
  const std::array saved = {
      std::pair(seconds - steps.play(wide).seconds, StepLimit::kBandwidth),
      std::pair(seconds - steps.play(near).seconds, StepLimit::kLatency),
      std::pair(seconds - steps.play(request, true).seconds, StepLimit::kCoding)};
  return std::max_element(saved.begin(), saved.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

Status check_timeline(const StepTimeline& timeline) {
  if (timeline.tensors.empty())
    return Status::fail(ErrorCode::kBadOption, "plan: the model has no tensors");
  if (timeline.ready_seconds.size() != timeline.tensors.size())
    return Status::fail(ErrorCode::kBadOption,
                        "plan: the timeline has " + std::to_string(timeline.ready_seconds.size()) +
                            " times for " + std::to_string(timeline.tensors.size()) + " tensors");
  return Status::ok();
}

}  // namespace

std::string_view to_string(StepLimit limit) noexcept {
  constexpr std::array<std::string_view, 4> kNames = {"computation", "bandwidth", "latency",
                                                      "coding"};
  return kNames[static_cast<size_t>(limit)];
}

double StepPrediction::busiest_bytes() const noexcept {
  return sent_bytes.empty() ? 0 : *std::max_element(sent_bytes.begin(), sent_bytes.end());
}

Result<StepPrediction> predict_step(const StepTimeline& timeline, const ExchangeOptions& options,
                                    const PlanRequest& request, CostTable& costs) {
  if (Status status = check_timeline(timeline); !status) return status;
  auto laid = StepLayout::make(timeline.tensors, options, request.ranks, costs);
  if (!laid) return laid.status();
  const StepLayout& layout = *laid.value();
  const Steps steps(layout, timeline);
  const Played played = steps.play(request);
  StepPrediction prediction{
      .method = method_names(layout),
      .seconds = played.seconds,
      .compute_seconds = timeline.compute_seconds,
      .encode_seconds = played.encode_seconds,
      .decode_seconds = played.decode_seconds,
      .wire_seconds = played.wire_seconds,
      .limit = limit_of(steps, request, played.seconds, timeline.compute_seconds),
      .sent_bytes = steps.sent(),
      .bytes_exact = steps.exact(),
      .memory_bytes = layout.memory_bytes()};
  return prediction;
}

Result<double> break_even_rate(const StepTimeline& timeline, const ExchangeOptions& compressed,
                               const ExchangeOptions& dense, const PlanRequest& request,
                               CostTable& costs, double speed_up) {
  auto laid = StepLayout::make(timeline.tensors, compressed, request.ranks, costs);
  if (!laid) return laid.status();
  auto laid_dense = StepLayout::make(timeline.tensors, dense, request.ranks, costs);
  if (!laid_dense) return laid_dense.status();
  const Steps steps(*laid.value(), timeline);
  const Steps dense_steps(*laid_dense.value(), timeline);
  const auto pays = [&](double rate) {
    PlanRequest at = request;
    at.link.bits_per_second = rate;
    return speed_up * steps.play(at).seconds < dense_steps.play(at).seconds;
  };
  double slow = 1e3, fast = 1e12;
  if (!pays(slow)) return 0.0;
  if (pays(fast)) return std::numeric_limits<double>::infinity();
  while (fast > 1.01 * slow) {
    const double middle = std::sqrt(slow * fast);
    (pays(middle) ? slow : fast) = middle;
  }
  return slow;
}

}  // namespace thinwire
