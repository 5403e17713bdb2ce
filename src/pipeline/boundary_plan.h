// BoundaryPlan: a boundary's spec, checked, and everything that follows from it at both ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec_schedule.h"
#include "thinwire/boundary.h"
#include "thinwire/codec.h"

namespace thinwire {

// What an estimate is known by, and what there is before the first visit.
enum class EstimateKey : uint8_t {
  kSample,  // a sample's id; the first visit goes in full
  kBatch,   // a mini-batch's id and the micro-batch; likewise
  kSlot,    // the micro-batch's place in the step; zeros
};

struct EstimateRule {
  EstimateKey key = EstimateKey::kSample;
  ValueFormat cache = ValueFormat::kFp32;
  std::shared_ptr<const Codec> first = {};  // what a first visit travels as
};

struct BoundaryPlan {
  BoundarySpec spec;
  size_t sample_count = 0;  // values of a sample
  CodecSchedule schedule;
  std::string codec_text = {};                          // as the schedule has it
  std::shared_ptr<const Codec> codec = {};              // of the step
  std::vector<std::shared_ptr<const Codec>> ends = {};  // at the ends of the schedule's courses
  std::string feedback = "none";  // of each stream of the sender, as make_feedback reads it
  std::optional<EstimateRule> estimates = {};  // of both ends
  bool whole_batches = false;                  // as BoundaryMemory has it

  size_t batch_count() const noexcept { return spec.samples * sample_count; }

  // Takes the codec of a step. Whether it is another one than before.
  bool follow(uint64_t step);

  // The stream of `samples` samples; per sample that is one of them.
  StreamSpec stream(size_t samples) const;

  // How many samples a stream has where a message codes so many.
  size_t stream_samples(size_t coded) const noexcept { return spec.per_sample ? 1 : coded; }

  // Upper bound on what follows the heads of a message, in bytes, in all steps.
  size_t max_body() const;

  std::string origin() const { return "boundary '" + spec.name + "': "; }
};

Result<BoundaryPlan> plan_boundary(const BoundarySpec& spec);

}  // namespace thinwire
