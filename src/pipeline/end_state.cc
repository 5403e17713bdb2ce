// Saves and loads an end: streams below streams/, estimates below estimates/.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/end_state.h"

#include "pipeline/state_levels.h"

namespace thinwire {
namespace {

constexpr std::string_view kStreams = "streams/";
constexpr std::string_view kEstimates = "estimates/";

}  // namespace

StateArrays save_end(const StreamCoders* coders, const std::optional<Estimates>& estimates) {
  StateArrays arrays;
  if (coders != nullptr) add_level(coders->save(), kStreams, arrays);
  if (estimates) add_level(estimates->save(), kEstimates, arrays);
  return arrays;
}

Status load_end(const StateArrays& arrays, StreamCoders* coders,
                std::optional<Estimates>& estimates) {
  const StateArrays streams = take_level(arrays, kStreams);
  const StateArrays remembered = take_level(arrays, kEstimates);
  const bool fits = streams.size() + remembered.size() == arrays.size() &&
                    (coders != nullptr || streams.empty()) &&
                    (estimates.has_value() || remembered.empty());
  if (!fits)
    return Status::fail(ErrorCode::kMismatch, "boundary: a state of another memory or end");
  const StateArrays before = coders != nullptr ? coders->save() : StateArrays{};
  if (coders != nullptr)
    if (Status status = coders->load(streams); !status) return status;
  Status status = estimates ? estimates->load(remembered) : Status::ok();
  if (!status && coders != nullptr) coders->load(before).or_throw();
  return status;
}

}  // namespace thinwire
