// predict_local_steps: the rounds of a method, and their share of every step.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <utility>

#include "plan/agreement_link.h"
#include "plan/leader_round.h"
#include "plan/step_limit.h"
#include "sync/leader_rule.h"
#include "sync/peer_graph.h"
#include "sync/round_terms.h"
#include "sync/worker_groups.h"
#include "thinwire/frame.h"
#include "thinwire/local_plan.h"

namespace thinwire {
namespace {

// The message of all weights: one frame of one codec.
struct WeightFrame {
  double bytes = 0;
  bool fixed_size = true;
  double encode_seconds = 0, decode_seconds = 0;
  double memory_bytes = 0;
};

WeightFrame frame_of(const std::vector<TensorSpec>& tensors, const std::string& codec_text,
                     CostTable& costs) {
  const NamedCodec named = make_codec(codec_text).value();
  const StreamSpec stream{.name = "weights", .tensors = tensors};
  const CodecCost& cost = costs.of({.codec = codec_text, .norms = false});
  const auto count = static_cast<double>(stream.count());
  const auto most = static_cast<double>(named.codec->max_encoded_size(stream));
  const bool fixed = named.codec->info().fixed_size;
  const double likely = cost.bytes_per_frame + cost.bytes_per_value * count;
  return {.bytes = kFrameHeaderSize + (fixed ? most : std::min(most, likely)),
          .fixed_size = fixed,
          .encode_seconds = cost.seconds_per_frame / 2 + cost.encode_seconds_per_value * count,
          .decode_seconds = cost.seconds_per_frame / 2 + cost.decode_seconds_per_value * count,
          // The reference, its replacement, and what was taken (weight_broadcast.h).
          .memory_bytes = named.codec->info().lossless ? 0 : 3 * sizeof(float) * count};
}

// A round of some kind, and in how many steps there is one.
struct PlannedRound {
  StepPrediction cost;
  double steps = 1;
};

// Rounds of several kinds may fall on one step; the longest step is the longest one of these.
StepPrediction over_steps(const StepTimeline& timeline, const std::vector<PlannedRound>& rounds) {
  StepPrediction mean = rounds.front().cost;
  std::fill(mean.sent_bytes.begin(), mean.sent_bytes.end(), 0.0);
  std::fill(mean.inside_bytes.begin(), mean.inside_bytes.end(), 0.0);
  mean.compute_seconds = mean.seconds = mean.longest_seconds = timeline.compute_seconds;
  mean.encode_seconds = mean.decode_seconds = mean.wire_seconds = 0;
  for (const PlannedRound& round : rounds) {
    mean.seconds += round.cost.seconds / round.steps;
    mean.longest_seconds =
        std::max(mean.longest_seconds, timeline.compute_seconds + round.cost.seconds);
    mean.encode_seconds += round.cost.encode_seconds / round.steps;
    mean.decode_seconds += round.cost.decode_seconds / round.steps;
    mean.wire_seconds += round.cost.wire_seconds / round.steps;
    for (size_t rank = 0; rank < mean.sent_bytes.size(); ++rank)
      mean.sent_bytes[rank] += round.cost.sent_bytes[rank] / round.steps;
    for (size_t rank = 0; rank < mean.inside_bytes.size(); ++rank)
      mean.inside_bytes[rank] += round.cost.inside_bytes[rank] / round.steps;
  }
  if (mean.seconds <= 1.05 * mean.compute_seconds) mean.limit = StepLimit::kComputation;
  return mean;
}

StepPrediction no_rounds(const StepTimeline& timeline, const PlanRequest& request) {
  const auto n = static_cast<size_t>(request.ranks);
  return {.method = "",
          .seconds = timeline.compute_seconds,
          .longest_seconds = timeline.compute_seconds,
          .compute_seconds = timeline.compute_seconds,
          .sent_bytes = std::vector<double>(n),
          .inside_bytes = std::vector<double>(n),
          .bytes_exact = true};
}

// All tensors are there when the round begins, and the worker waits for it.
Result<StepPrediction> mean_round(const StepTimeline& timeline, const ExchangeOptions& exchange,
                                  PlanRequest request, CostTable& costs) {
  request.own_core = true;
  const StepTimeline at_once{.tensors = timeline.tensors,
                             .ready_seconds = std::vector<double>(timeline.tensors.size())};
  return predict_step(at_once, exchange, request, costs);
}

// The frames that a rank writes and reads in a round, and those of which it keeps what all have
// taken.
struct FrameCounts {
  int encoded = 1, decoded = 1, kept = 1;
};

// The mean of some rounds of which only the messages differ.
class TracedRounds {
 public:
  TracedRounds(const PlanRequest& request, const WeightFrame& frame, const FrameCounts& frames)
      : request_(request) {
    mean_.encode_seconds = frames.encoded * frame.encode_seconds;
    mean_.decode_seconds = frames.decoded * frame.decode_seconds;
    mean_.memory_bytes = frames.kept * frame.memory_bytes;
    mean_.sent_bytes.resize(static_cast<size_t>(request.ranks));
    mean_.inside_bytes.resize(static_cast<size_t>(request.ranks));
  }

  // Besides its frames, each rank of a circle of so many sends words.
  void add_words(int circle, size_t rank) {
    const LeaderWords words = leader_words(circle);
    mean_.sent_bytes[rank] += words.bytes;
    const LinkSpec& link = agreement_link(request_);
    word_seconds_ = std::max(word_seconds_,
                             link.seconds_for(words.bytes) + words.messages * link.latency_seconds);
  }

  void add(const std::vector<RankTrace>& traces, double share) {
    const double seconds = trace_seconds(traces, request_);
    mean_.wire_seconds += share * seconds;
    if (!std::exchange(limited_, true)) {
      const double coding = mean_.encode_seconds + mean_.decode_seconds;
      const auto play = [&](const PlanRequest& other, bool free_coding) {
        return trace_seconds(traces, other) + (free_coding ? 0 : coding);
      };
      mean_.limit = limit_of(play, request_, seconds + coding, 0);
    }
    for (size_t rank = 0; rank < traces.size(); ++rank) {
      const int machine = static_cast<int>(rank) / request_.per_machine;
      const auto is_inside = [&](int to) { return to / request_.per_machine == machine; };
      mean_.inside_bytes[rank] += share * traced_bytes(traces[rank], is_inside);
      mean_.sent_bytes[rank] += share * traced_bytes(traces[rank], [](int) { return true; });
    }
  }

  StepPrediction mean() const {
    StepPrediction mean = mean_;
    mean.wire_seconds += word_seconds_;
    mean.seconds = mean.wire_seconds + mean.encode_seconds + mean.decode_seconds;
    return mean;
  }

 private:
  const PlanRequest& request_;
  StepPrediction mean_;
  double word_seconds_ = 0;
  bool limited_ = false;
};

std::vector<int> leader_groups(const LeaderRule& rule, const PlanRequest& request) {
  const int machines = request.ranks / request.per_machine;
  return neighbour_colours(request.ranks, rule.groups > 0 ? rule.groups : machines);
}

// Whether any group holds rounds of its own: a rank that is a group alone has nobody to be pulled
// to.
bool has_local_rounds(const LeaderRule& rule, const std::vector<int>& groups) {
  return groups.back() > 0 && rule.tau != rule.tau_global &&
         std::adjacent_find(groups.begin(), groups.end()) != groups.end();
}

// The frames of a few leaders, evenly spread, stand for those of all.
StepPrediction leader_rounds(const LeaderRule& rule, bool global, const std::vector<int>& groups,
                             const WeightFrame& frame, const PlanRequest& request) {
  constexpr int kLeaders = 16;
  const int count = groups.back() + 1;
  const bool has_local = has_local_rounds(rule, groups);
  LeaderRound round{.colours = groups,
                    .global = global,
                    .local = has_local,
                    .frame_bytes = frame.bytes,
                    .announced = !frame.fixed_size,
                    .own_leaders = {}};
  const int frames = (has_local ? 1 : 0) + (global ? 1 : 0);
  // Workers keep the references of both kinds of rounds, whether or not there are such rounds.
  TracedRounds rounds(request, frame, {.encoded = frames, .decoded = frames, .kept = 2});
  const int leaders = std::min(kLeaders, request.ranks);
  for (int which = 0; which < leaders; ++which) {
    round.leader = static_cast<int>(int64_t{which} * request.ranks / leaders);
    round.own_leaders.clear();
    for (int group = 0; group < count; ++group) {
      const auto first = std::find(groups.begin(), groups.end(), group);
      const auto size = std::count(groups.begin(), groups.end(), group);
      round.own_leaders.push_back(static_cast<int>(first - groups.begin() + which % size));
    }
    round.own_leaders[static_cast<size_t>(groups[static_cast<size_t>(round.leader)])] =
        round.leader;
    rounds.add(trace_leader_round(round), 1.0 / leaders);
  }
  for (size_t rank = 0; rank < groups.size(); ++rank)
    rounds.add_words(global
                         ? request.ranks
                         : static_cast<int>(std::count(groups.begin(), groups.end(), groups[rank])),
                     rank);
  StepPrediction mean = rounds.mean();
  mean.method = "broadcast";
  return mean;
}

Result<StepPrediction> leader_steps(const StepTimeline& timeline, const LeaderRule& rule,
                                    const std::string& codec, const PlanRequest& request,
                                    CostTable& costs) {
  if (rule.asynchronous)
    return Status::fail(ErrorCode::kUnsupported,
                        "plan: plays no asynchronous workers, whose rounds depend on their speeds");
  if (rule.groups > request.ranks)
    return Status::fail(ErrorCode::kBadOption, "plan: " + std::to_string(rule.groups) +
                                                   " groups among " +
                                                   std::to_string(request.ranks) + " ranks");
  const WeightFrame frame = frame_of(timeline.tensors, codec, costs);
  const std::vector<int> groups = leader_groups(rule, request);
  const auto tau = static_cast<double>(rule.tau), all = static_cast<double>(rule.tau_global);
  std::vector<PlannedRound> rounds = {
      {.cost = leader_rounds(rule, true, groups, frame, request), .steps = all}};
  if (has_local_rounds(rule, groups))  // all but every (all / tau)-th of them
    rounds.push_back({.cost = leader_rounds(rule, false, groups, frame, request),
                      .steps = all / (all / tau - 1)});
  return over_steps(timeline, rounds);
}

Result<StepPrediction> gossip_steps(const StepTimeline& timeline, const Options& rule,
                                    const SynchroniserOptions& options, const PlanRequest& request,
                                    CostTable& costs) {
  const PeerGraph graph = graph_named(rule.text("graph"));
  WeightFrame frame = frame_of(timeline.tensors, options.codec, costs);
  if (!is_regular(graph)) frame.bytes += sizeof(float);
  const int n = request.ranks;
  const int turns = graph == PeerGraph::kRandom ? 16 : std::bit_width(static_cast<unsigned>(n - 1));
  // On average a rank reads as many frames as it has peers.
  const auto peers = static_cast<int>(peers_of(graph, 0, n, 0, options.seed).size());
  TracedRounds rounds(request, frame, {.decoded = peers});
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<RankTrace> traces;
    for (int rank = 0; rank < n; ++rank) {
      TraceGroup group(rank, n);
      group.set_scale(frame.bytes);
      std::byte unit{};
      std::vector<std::unique_ptr<Transfer>> transfers;
      const auto round = static_cast<uint64_t>(turn);
      for (const int sender : senders_to(graph, rank, n, round, options.seed))
        transfers.push_back(group.receive(std::span(&unit, 1), sender, 0));
      for (const int peer : peers_of(graph, rank, n, round, options.seed))
        transfers.push_back(group.send(std::span(&unit, 1), peer, 0));
      group.wait(transfers);
      traces.push_back(group.trace());
    }
    rounds.add(traces, 1.0 / turns);
  }
  PlannedRound round{.cost = rounds.mean(), .steps = static_cast<double>(rule.integer("tau"))};
  round.cost.method = "push";
  round.cost.bytes_exact = graph != PeerGraph::kRandom;
  return over_steps(timeline, {round});
}

}  // namespace

Result<StepPrediction> predict_local_steps(const StepTimeline& timeline,
                                           const SynchroniserOptions& options,
                                           const PlanRequest& request, CostTable& costs) {
  Result<RoundTerms> terms = round_terms(options);
  if (!terms) return terms.status();
  // What is wrong with tensors, ranks and machines is wrong for every method.
  const Result<StepPrediction> checked =
      mean_round(timeline, {.codec = "fp32", .method = "dense", .norms = false}, request, costs);
  if (!checked) return checked.status();
  if (request.ranks == 1) return no_rounds(timeline, request);
  try {
    const RoundTerms& of = terms.value();
    if (of.rule == "leader")
      return leader_steps(timeline, read_leader_rule(of.options), options.codec, request, costs);
    if (of.rule == "gossip") return gossip_steps(timeline, of.options, options, request, costs);
    if (of.rule == "streaming")
      return Status::fail(ErrorCode::kUnsupported,
                          "plan: rounds of streaming overlap the steps that follow, which is not "
                          "predicted; diloco with the same tau sends about as many bytes in all");
    Result<StepPrediction> round = mean_round(timeline, *of.exchange, request, costs);
    if (!round) return round.status();
    return over_steps(timeline, {{.cost = std::move(round).value(),
                                  .steps = static_cast<double>(of.options.integer("tau"))}});
  } catch (const Error& error) {
    return Status::fail(error.code(), error.what());
  }
}

}  // namespace thinwire
