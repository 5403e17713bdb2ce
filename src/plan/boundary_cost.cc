// boundary_cost: streams of a message and what their codec costs.
// SPDX-License-Identifier: Apache-2.0
#include "plan/boundary_cost.h"

#include <algorithm>

#include "pipeline/boundary_message.h"
#include "pipeline/boundary_plan.h"

namespace thinwire {
namespace {

// With the memory of the same rule that exchanges have, if it goes with the codec there, else
// without. Estimates are taken to cost what ef21 does.
const CodecCost& cost_of(const BoundaryPlan& plan, CostTable& costs) {
  ExchangeOptions options{.codec = plan.codec_text,
                          .feedback = plan.estimates ? "ef21" : plan.feedback};
  if (!check_exchange(options)) options.feedback = "none";
  return costs.of(options);
}

double payload_of(const Codec& codec, const StreamSpec& stream, const CodecCost& cost) {
  const auto most = static_cast<double>(codec.max_encoded_size(stream));
  if (codec.info().fixed_size) return most;
  return std::min(
      most, cost.bytes_per_frame + cost.bytes_per_value * static_cast<double>(stream.count()));
}

}  // namespace

// Bytes per value that each end keeps: what arrived in a step, and the estimates of its
// micro-batches.
double estimate_bytes(const BoundaryPlan& plan) {
  if (!plan.estimates) return 0;
  const bool by_slot = plan.estimates->key == EstimateKey::kSlot;
  const size_t cached = plan.estimates->cache == ValueFormat::kFp32 ? 4 : 2;
  return static_cast<double>(sizeof(float) + (by_slot ? cached : 0));
}

Result<BoundaryCost> boundary_cost(const BoundarySpec& spec, double noted, CostTable& costs) {
  Result<BoundaryPlan> planned = plan_boundary(spec);
  if (!planned) return planned.status();
  const BoundaryPlan& plan = planned.value();
  try {
    const CodecCost& cost = cost_of(plan, costs);
    const StreamSpec stream = plan.stream(plan.stream_samples(spec.samples));
    const auto streams = static_cast<double>(spec.per_sample ? spec.samples : 1);
    const auto values = static_cast<double>(plan.batch_count());
    double body = streams * (sizeof(uint32_t) + payload_of(*plan.codec, stream, cost));
    if (noted > 0)
      body = sizeof(uint32_t) + noted * static_cast<double>(spec.samples) *
                                    payload_of(*plan.codec, stream, cost) /
                                    static_cast<double>(stream.count());
    const auto coded = [&](double per_value) {
      return streams * cost.seconds_per_frame / 2 + values * per_value;
    };
    const double of_step = values * static_cast<double>(spec.micro_batches);
    const double estimates = of_step * estimate_bytes(plan);
    return BoundaryCost{
        .message_bytes = kBodyOffset + body,
        .encode_seconds = coded(cost.encode_seconds_per_value),
        .decode_seconds = coded(cost.decode_seconds_per_value),
        .sender_memory_bytes = plan.estimates ? estimates : cost.memory_bytes_per_value * of_step,
        .receiver_memory_bytes = estimates,
        .exact = plan.codec->info().fixed_size && noted == 0};
  } catch (const Error& error) {
    return Status::fail(error.code(), error.what());
  }
}

}  // namespace thinwire
