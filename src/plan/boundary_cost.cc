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
                                    payload_of(*plan.codec, stream, cost) / values;
    const auto coded = [&](double per_value) {
      return streams * cost.seconds_per_frame / 2 + values * per_value;
    };
    return BoundaryCost{.message_bytes = kBodyOffset + body,
                        .encode_seconds = coded(cost.encode_seconds_per_value),
                        .decode_seconds = coded(cost.decode_seconds_per_value),
                        .memory_bytes = cost.memory_bytes_per_value * values *
                                        static_cast<double>(spec.micro_batches),
                        .exact = plan.codec->info().fixed_size && noted == 0};
  } catch (const Error& error) {
    return Status::fail(error.code(), error.what());
  }
}

}  // namespace thinwire
