// StepLayout: settles options, makes the exchange's streams without memories, and sorts their
// buckets.
// SPDX-License-Identifier: Apache-2.0
#include "plan/step_layout.h"

#include <algorithm>
#include <utility>

#include "exchange/levels/holders.h"
#include "exchange/step/verdict.h"
#include "thinwire/frame.h"

namespace thinwire {
namespace {

constexpr double kOwnerBytes = 2 * sizeof(float);  // of an OwnerMemory, per value of its shard

Status refuse(const std::string& why) {
  return Status::fail(ErrorCode::kUnsupported, "plan: " + why);
}

// As the exchange finds it from the memories of its streams.
bool keeps_rest(const std::string& feedback) {
  const StreamSpec one = single_tensor({.name = "w", .shape = {1}});
  return !make_feedback(feedback, one).value()->rest().empty();
}

Status check_playable(const ExchangeOptions& options, int ranks) {
  if (ranks < 1 || ranks > kMostRanks)
    return Status::fail(ErrorCode::kBadOption, "plan: ranks must be 1 to " +
                                                   std::to_string(kMostRanks) + ", not " +
                                                   std::to_string(ranks));
  if (options.combine != "mean")
    return refuse("plays combine = 'mean' alone, not '" + options.combine + "'");
  if (options.columns != 1) return refuse("plays no columns of ranks; plan one column alone");
  if (options.results != Results::kFull) return refuse("plays full results alone, no shards");
  if (options.weighted) return refuse("plays no weights of ranks");
  return Status::ok();
}

}  // namespace

Result<Sections> resolve_playable(const std::vector<TensorSpec>& tensors,
                                  const ExchangeOptions& options, int ranks) {
  if (Status status = check_playable(options, ranks); !status) return status;
  Result<Sections> sections = resolve_sections(options, tensors, options.first_step);
  if (!sections) return sections.status();
  for (const Section& section : sections.value().used)
    if (section.terms.method->name == "library")
      return refuse("method 'library' sends what its library decides");
  try {
    check_groups(options.inside, ranks);
  } catch (const Error& error) {
    return Status::fail(error.code(), error.what());
  }
  return sections;
}

StepLayout::StepLayout(const Sections& sections, const std::vector<TensorSpec>& tensors,
                       const ExchangeOptions& options, size_t ranks, CostTable& costs)
    : options_(options), ranks_(ranks) {
  lay(sections, tensors, costs);
}

void StepLayout::lay(const Sections& sections, const std::vector<TensorSpec>& tensors,
                     CostTable& costs) {
  plan_ = plan_of(sections, tensors, options_);
  ExchangeOptions plain = options_;
  plain.rules.clear();
  plain.codec = "fp32";
  plain.method = plain.feedback = "auto";
  for (const PlannedStream& planned : plan_.streams) {
    const Section& section = sections.used[planned.section];
    Terms terms = section.terms;
    terms.feedback = "none";
    costs_.push_back(costs.of(planned.plain ? plain : section.options));
    streams_.push_back(
        std::make_unique<ActiveStream>(planned, streams_.size(), terms, section.options, store_));
  }
  for (const Section& section : sections.used)
    sections_.push_back({.method = section.terms.method,
                         .keeps_rest = keeps_rest(section.terms.feedback),
                         .buckets = {},
                         .places = {},
                         .chunks = {},
                         .rows = {}});
  for (size_t place = 0; place < plan_.buckets.size(); ++place) {
    const Bucket& bucket = plan_.buckets[place];
    LaidSection& section = sections_[plan_.streams[bucket.front().stream].section];
    section.buckets.push_back(bucket);
    section.places.push_back(place);
  }
  for (LaidSection& section : sections_) {
    if (section.method->name == "scatter-reduce")
      section.chunks =
          std::make_unique<ChunkPlan>(streams_, section.buckets, ranks_, options_.chunk_values);
    section.rows = owner_rows(*this, section);
  }
}

double StepLayout::frame_size(const ActiveStream& stream) const {
  const Codec& codec = stream.codec();
  const auto most = static_cast<double>(codec.max_encoded_size(stream.spec()));
  if (codec.info().fixed_size) return kFrameHeaderSize + most;
  const CodecCost& cost = this->cost(stream);
  const double likely =
      cost.bytes_per_frame + cost.bytes_per_value * static_cast<double>(stream.spec().count());
  return kFrameHeaderSize + std::min(most, likely);
}

double StepLayout::encode_seconds(const ActiveStream& stream, size_t count) const {
  const CodecCost& cost = this->cost(stream);
  return cost.seconds_per_frame / 2 + cost.encode_seconds_per_value * static_cast<double>(count);
}

double StepLayout::decode_seconds(const ActiveStream& stream, size_t count) const {
  const CodecCost& cost = this->cost(stream);
  return cost.seconds_per_frame / 2 + cost.decode_seconds_per_value * static_cast<double>(count);
}

double StepLayout::memory_bytes() const {
  double bytes = 0;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const ActiveStream& stream = *streams_[i];
    const LaidSection& section = sections_[plan_.streams[i].section];
    const bool owned =
        !stream.is_plain() && section.method->owners_remember(stream.codec(), section.keeps_rest);
    const double of_owner = owned ? kOwnerBytes / static_cast<double>(ranks_) : 0;
    bytes += (cost(stream).memory_bytes_per_value + of_owner) *
             static_cast<double>(stream.spec().count());
  }
  return bytes;
}

}  // namespace thinwire
