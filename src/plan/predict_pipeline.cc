// predict_pipeline: the play of all micro-batches, then the exchanges of all stages.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "plan/agreement_link.h"
#include "plan/pipeline_play.h"
#include "plan/step_limit.h"
#include "thinwire/pipeline_plan.h"

namespace thinwire {
namespace {

Status refuse(ErrorCode code, const std::string& why) { return Status::fail(code, "plan: " + why); }

Status check(const PlannedPipeline& pipeline, const PlanRequest& request) {
  const size_t stages = pipeline.stages.size();
  const auto machine = static_cast<size_t>(std::max(1, request.per_machine));
  const std::string both = std::to_string(request.ranks) + " ranks";
  if (stages == 0 || pipeline.micro_batches == 0 || pipeline.cuts.size() + 1 != stages)
    return refuse(ErrorCode::kBadOption,
                  "a pipeline has stages, a cut between each two, and "
                  "micro-batches");
  if (request.ranks < 1 || static_cast<size_t>(request.ranks) % stages != 0)
    return refuse(ErrorCode::kBadOption,
                  std::to_string(stages) +
                      " stages need as many ranks, or a multiple of that, not " +
                      std::to_string(request.ranks));
  if (request.per_machine < 1 || static_cast<size_t>(request.ranks) % machine != 0)
    return refuse(ErrorCode::kBadOption, "machines of " + std::to_string(request.per_machine) +
                                             " ranks do not make up " + both);
  if (stages % machine != 0 && machine % stages != 0)
    return refuse(ErrorCode::kUnsupported,
                  "machines of " + std::to_string(machine) + " ranks divide pipelines of " +
                      std::to_string(stages) + " stages unevenly; choose a divisor or a multiple");
  if (pipeline.exchange.inside != 1)
    return refuse(ErrorCode::kUnsupported,
                  "pipelines exchange without groups inside; choose "
                  "exchange.inside = 1");
  return Status::ok();
}

Result<PipelineOrder> order_of(const std::string& name) {
  if (name == "1f1b") return PipelineOrder::kOneFOneB;
  if (name == "fill-drain") return PipelineOrder::kFillDrain;
  if (name == "decoupled") return PipelineOrder::kDecoupled;
  return refuse(ErrorCode::kUnknownName,
                "unknown order '" + name + "' of a pipeline; known: 1f1b, fill-drain, decoupled");
}

// Of the values of a sample, those that the codec of its activations keeps, if gradients go to
// these alone.
double noted_values(const PlannedCut& cut, CostTable& costs) {
  if (cut.backward.at_positions == nullptr) return 0;
  double values = 1;
  for (const uint64_t extent : cut.forward.sample_shape) values *= static_cast<double>(extent);
  const CodecCost& cost = costs.of({.codec = cut.forward.codec, .feedback = "none"});
  constexpr double kValueAndPosition = 4.6;  // bytes
  return std::max(1.0, std::min(1.0, cost.bytes_per_value / kValueAndPosition) * values);
}

// Ranks of one stage exchange at the same time as those of the other stages. Those of one machine
// share its link.
PlanRequest among_peers(const PlannedPipeline& pipeline, const PlanRequest& request) {
  const auto stages = static_cast<int>(pipeline.stages.size());
  PlanRequest peers = request;
  peers.ranks = request.ranks / stages;
  peers.own_core = true;  // nothing else is done meanwhile
  peers.per_machine = std::max(1, request.per_machine / stages);
  peers.link.bits_per_second /= std::min(request.per_machine, stages);
  return peers;
}

// Of a stage without weights.
Result<StepPrediction> nothing_sent(int ranks) {
  StepPrediction none;
  none.sent_bytes.resize(static_cast<size_t>(ranks));
  none.bytes_exact = true;
  return none;
}

struct Exchanges {
  StepPrediction slowest;
  std::vector<StepPrediction> of_stage;
  double memory = 0;
};

Result<Exchanges> play_exchanges(const PlannedPipeline& pipeline, const PlanRequest& request,
                                 CostTable& costs) {
  Exchanges all;
  for (const PlannedStage& stage : pipeline.stages) {
    const StepTimeline at_once{.tensors = stage.tensors,
                               .ready_seconds = std::vector<double>(stage.tensors.size())};
    Result<StepPrediction> one =
        stage.tensors.empty()
            ? nothing_sent(request.ranks)
            : predict_step(at_once, pipeline.exchange, among_peers(pipeline, request), costs);
    if (!one) return one.status();
    all.of_stage.push_back(std::move(one).value());
    all.memory = std::max(all.memory, all.of_stage.back().memory_bytes);
    if (all.of_stage.back().seconds > all.slowest.seconds || all.slowest.method.empty())
      all.slowest = all.of_stage.back();
  }
  return all;
}

// Boundaries with their costs, or with some of them gone.
class Played {
 public:
  static Result<Played> make(const PlannedPipeline& pipeline, const PlanRequest& request,
                             CostTable& costs) {
    Played played;
    Result<PipelineOrder> order = order_of(pipeline.order);
    if (!order) return order.status();
    played.play_.order = order.value();
    played.play_.micro_batches = pipeline.micro_batches;
    played.play_.replicas = static_cast<size_t>(request.ranks) / pipeline.stages.size();
    for (const PlannedStage& stage : pipeline.stages)
      played.play_.stages.push_back(
          {.forward = stage.forward_seconds, .backward = stage.backward_seconds});
    const bool decoupled = order.value() == PipelineOrder::kDecoupled;
    for (const PlannedCut& cut : pipeline.cuts) {
      if (decoupled && cut.backward.at_positions != nullptr)
        return refuse(ErrorCode::kUnsupported,
                      "decoupled stages send gradients before they know which positions of the "
                      "activations were kept");
      Result<BoundaryCost> forward = boundary_cost(cut.forward, 0, costs);
      if (!forward) return forward.status();
      Result<BoundaryCost> backward = boundary_cost(cut.backward, noted_values(cut, costs), costs);
      if (!backward) return backward.status();
      for (BoundaryCost* cost : {&forward.value(), &backward.value()})
        if (decoupled) cost->encode_seconds += cost->decode_seconds;
      played.play_.forward.push_back(forward.value());
      played.play_.backward.push_back(backward.value());
    }
    Result<Exchanges> exchanges = play_exchanges(pipeline, request, costs);
    if (!exchanges) return exchanges.status();
    played.exchanges_ = std::move(exchanges).value();
    return played;
  }

  const PipelinePlay& play() const { return play_; }
  const Exchanges& exchanges() const { return exchanges_; }

  // Until the last message has left.
  PlayedPipeline run(const PlanRequest& request, bool free_coding = false) const {
    PipelinePlay play = play_;
    for (auto* costs : {&play.forward, &play.backward})
      for (BoundaryCost& cost : *costs)
        if (free_coding) cost.encode_seconds = cost.decode_seconds = 0;
    return play_pipeline(play, request);
  }

 private:
  PipelinePlay play_;
  Exchanges exchanges_;
};

// All ranks tell all others what they found after the passes, after an exchange, and their
// counters.
double agreement_seconds(const PlanRequest& request, bool exchanges) {
  return request.ranks > 1 ? (exchanges ? 3 : 2) * agreement_link(request).latency_seconds : 0;
}

StepLimit limit_of(const Played& played, const PlanRequest& request, const PlayedPipeline& passes,
                   double exchange, double step, double computation) {
  if (step <= 1.05 * computation) return StepLimit::kComputation;
  if (exchange > passes.seconds - computation) return played.exchanges().slowest.limit;
  return limit_of([&](const PlanRequest& other,
                      bool free_coding) { return played.run(other, free_coding).seconds; },
                  request, passes.seconds, 0);
}

// What it would take over links without limits, nothing being coded.
double computation_of(const Played& played, const PlanRequest& request, double optimizer) {
  PlanRequest free = request;
  free.link = free.inside = {};
  free.own_core = true;
  return played.run(free, true).seconds + optimizer;
}

void count_bytes(const Played& played, const PlannedPipeline& pipeline, PipelinePrediction& to) {
  constexpr double kLengthBytes = 8;
  const size_t stages = pipeline.stages.size();
  const auto messages = static_cast<double>(pipeline.micro_batches);
  const PipelinePlay& play = played.play();
  for (size_t rank = 0; rank < stages * play.replicas; ++rank) {
    const size_t stage = rank % stages;
    const StepPrediction& exchange = played.exchanges().of_stage[stage];
    double sent = exchange.sent_bytes[rank / stages], memory = exchange.memory_bytes;
    double encode = 0, decode = 0;
    const auto add = [&](const BoundaryCost& out, const BoundaryCost& in) {
      sent += messages * (out.message_bytes + kLengthBytes);
      encode += messages * out.encode_seconds;
      decode += messages * in.decode_seconds;
      memory += out.sender_memory_bytes + in.receiver_memory_bytes;
      to.step.bytes_exact = to.step.bytes_exact && out.exact;
    };
    if (stage + 1 < stages) {
      add(play.forward[stage], play.backward[stage]);
      memory += pipeline.cuts[stage].auxiliary_bytes;
    }
    if (stage > 0) {
      add(play.backward[stage - 1], play.forward[stage - 1]);
      memory += pipeline.cuts[stage - 1].auxiliary_bytes;
    }
    to.step.sent_bytes.push_back(sent);
    to.step.encode_seconds = std::max(to.step.encode_seconds, encode);
    to.step.decode_seconds = std::max(to.step.decode_seconds, decode);
    to.step.memory_bytes = std::max(to.step.memory_bytes, memory);
    to.step.bytes_exact =
        to.step.bytes_exact && pipeline.even && (exchange.bytes_exact || play.replicas == 1);
  }
  for (size_t cut = 0; cut + 1 < stages; ++cut)
    to.cuts.push_back({.forward_bytes = messages * play.forward[cut].message_bytes,
                       .backward_bytes = messages * play.backward[cut].message_bytes});
}

}  // namespace

Result<PipelinePrediction> predict_pipeline(const PlannedPipeline& pipeline,
                                            const PlanRequest& request, CostTable& costs) {
  if (Status status = check(pipeline, request); !status) return status;
  Result<Played> made = Played::make(pipeline, request, costs);
  if (!made) return made.status();
  const Played& played = made.value();
  const PlayedPipeline passes = played.run(request);
  const StepPrediction& exchange = played.exchanges().slowest;
  PipelinePrediction prediction;
  prediction.step.bytes_exact = true;
  count_bytes(played, pipeline, prediction);
  StepPrediction& step = prediction.step;
  if (request.per_machine == 1) step.inside_bytes.resize(step.sent_bytes.size());
  const bool exchanges = played.play().replicas > 1;
  step.method = exchanges ? exchange.method : "";
  prediction.exchange_seconds = exchanges ? exchange.seconds : 0;
  prediction.idle_share = passes.idle_share;
  step.compute_seconds = computation_of(played, request, pipeline.optimizer_seconds);
  step.seconds = passes.seconds + prediction.exchange_seconds +
                 agreement_seconds(request, exchanges) + pipeline.optimizer_seconds;
  step.longest_seconds = step.seconds;
  if (exchanges) {
    step.encode_seconds += exchange.encode_seconds;
    step.decode_seconds += exchange.decode_seconds;
  }
  step.wire_seconds = passes.wire_seconds + (exchanges ? exchange.wire_seconds : 0);
  step.limit = limit_of(played, request, passes, prediction.exchange_seconds, step.seconds,
                        step.compute_seconds);
  return prediction;
}

}  // namespace thinwire
