// The table of boundary memories, and the checks of a BoundarySpec.
// SPDX-License-Identifier: Apache-2.0
#include "pipeline/boundary_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/named_row.h"
#include "thinwire/feedback.h"

namespace thinwire {
namespace {

OptionInfo choice(std::string_view name, std::string_view fallback,
                  std::vector<std::string_view> choices, std::string_view help) {
  return {.name = name,
          .type = OptionType::kChoice,
          .fallback = fallback,
          .choices = std::move(choices),
          .help = help};
}

ValueFormat format_named(const std::string& name) {
  if (name == "fp16") return ValueFormat::kFp16;
  return name == "bf16" ? ValueFormat::kBf16 : ValueFormat::kFp32;
}

bool by_batch(const Options& options) { return options.text("key") == "batch"; }

// A memory, and what a plan with it has besides.
struct MemoryRow {
  BoundaryMemory info;
  void (*set)(BoundaryPlan& plan, const Options& options) = nullptr;
};

const std::vector<MemoryRow>& table() {
  static const std::vector<MemoryRow> rows = {
      {.info = {.name = "none", .summary = "remembers nothing"},
       .set = [](BoundaryPlan& /*plan*/, const Options& /*options*/) {}},
      {.info = {.name = "ef",
                .summary = "adds what was not sent to what has the same place in the next step",
                .paper = "Rudakov et al., Dokl. Math. 2023, arXiv:2401.07788",
                .whole_batches = true},
       .set = [](BoundaryPlan& plan, const Options& /*options*/) { plan.feedback = "residual"; }},
      {.info = {.name = "efmixed",
                .summary = "half of what may be sent for the tensor, half for what was left before",
                .paper = "Rudakov et al., Dokl. Math. 2023, arXiv:2401.07788",
                .options = find_feedback("efmixed").value().entry->options,
                .whole_batches = true},
       .set = [](BoundaryPlan& plan,
                 const Options& options) { plan.feedback = "efmixed:" + options.canonical(); }},
      {.info = {.name = "ef21",
                .summary = "sends changes of an estimate of what has the same place in each step",
                .paper = "Richtarik et al., NeurIPS 2021",
                .whole_batches = true},
       .set =
           [](BoundaryPlan& plan, const Options& /*options*/) {
             plan.estimates = EstimateRule{.key = EstimateKey::kSlot};
           }},
      {.info = {.name = "aqsgd",
                .summary = "sends changes of an estimate of each sample, or of each batch",
                .paper = "Wang et al., NeurIPS 2022, arXiv:2206.01299",
                .options = {choice("key", "sample", {"sample", "batch"},
                                   "whose estimates are kept"),
                            choice("cache", "fp32", {"fp32", "fp16", "bf16"},
                                   "what estimates are kept as"),
                            choice("first", "fp32", {"fp32", "fp16", "bf16"},
                                   "what a first visit travels as")},
                .by_id = true,
                .fixed_batches = by_batch},
       .set = [](BoundaryPlan& plan, const Options& options) {
         plan.estimates =
             EstimateRule{.key = by_batch(options) ? EstimateKey::kBatch : EstimateKey::kSample,
                          .cache = format_named(options.text("cache")),
                          .first = make_codec(options.text("first")).value().codec};
       }}};
  return rows;
}

Status fail(ErrorCode code, const BoundarySpec& spec, const std::string& why) {
  return Status::fail(code, "boundary '" + spec.name + "': " + why);
}

Status set_memory(BoundaryPlan& plan) {
  auto named = find_named_row(table(), "memory", plan.spec.memory);
  if (!named) return fail(named.status().code(), plan.spec, named.status().message());
  const auto& [row, options] = named.value();
  row->set(plan, options);
  plan.whole_batches = row->info.whole_batches;
  return Status::ok();
}

// Sizes travel in 32 bits, and so do positions.
Status check_sizes(const BoundarySpec& spec, size_t& sample_count) {
  constexpr uint64_t kLimit = std::numeric_limits<uint32_t>::max() / sizeof(float);
  uint64_t count = 1, values = 0, in_step = 0;
  for (const uint64_t extent : spec.sample_shape)
    if (__builtin_mul_overflow(count, extent, &count))
      return fail(ErrorCode::kBadOption, spec, "a sample is too large");
  if (count == 0 || spec.samples == 0 || spec.micro_batches == 0)
    return fail(ErrorCode::kBadOption, spec, "no values, no samples or no micro-batches");
  if (__builtin_mul_overflow(count, spec.samples, &values) || values > kLimit ||
      spec.micro_batches > kLimit || __builtin_mul_overflow(values, spec.micro_batches, &in_step))
    return fail(ErrorCode::kUnsupported, spec, "a micro-batch of more than 2^30 - 1 values");
  sample_count = count;
  return Status::ok();
}

// Notes are of what is sent, so that it must be all that arrives; and gradients there are as they
// are.
Status check_positions(const BoundaryPlan& plan) {
  const BoundarySpec& spec = plan.spec;
  const auto all = [&](const auto& is) {
    return std::all_of(plan.ends.begin(), plan.ends.end(), is);
  };
  const bool sparse = all([](const auto& codec) { return codec->info().sparse; });
  if (spec.note_positions && (!sparse || plan.estimates))
    return fail(ErrorCode::kUnsupported, spec,
                "positions can be noted of sparse codecs, without ef21 and aqsgd");
  if (!spec.at_positions) return Status::ok();
  const bool plain = all([](const auto& codec) {  // any number of values, each by itself
    return codec->info().block == 1 && codec->info().fixed_size;
  });
  if (!plain || plan.estimates || plan.feedback != "none" || spec.note_positions)
    return fail(ErrorCode::kUnsupported, spec,
                "values at noted positions travel as fp32, fp16 or bf16, without memory");
  return Status::ok();
}

}  // namespace

std::vector<BoundaryMemory> list_boundary_memories() {
  std::vector<BoundaryMemory> memories;
  for (const MemoryRow& row : table()) memories.push_back(row.info);
  return memories;
}

Result<NamedBoundaryMemory> find_boundary_memory(std::string_view text) {
  auto named = find_named_row(table(), "memory of a boundary", text);
  if (!named) return named.status();
  return NamedBoundaryMemory{.entry = &named.value().row->info,
                             .options = std::move(named.value().options)};
}

StreamSpec BoundaryPlan::stream(size_t samples) const {
  TensorSpec tensor{.name = spec.name, .shape = spec.sample_shape};
  if (!spec.per_sample) tensor.shape.insert(tensor.shape.begin(), samples);
  return single_tensor(std::move(tensor));
}

bool BoundaryPlan::follow(uint64_t step) {
  std::string text = schedule.at(step, spec.steps_per_epoch);
  if (text == codec_text) return false;
  codec = make_codec(text).value().codec;
  codec_text = std::move(text);
  return true;
}

// The most over all shares of samples that are coded; the others go in full.
size_t BoundaryPlan::max_body() const {
  const bool in_full = estimates && estimates->first;
  const size_t full_size = in_full ? estimates->first->max_encoded_size(single_tensor(
                                         {.name = spec.name, .shape = {sample_count}}))
                                   : 0;
  size_t most = 0;
  for (size_t coded = 0; coded <= spec.samples; ++coded) {
    size_t size = (spec.samples - coded) * full_size;
    if (coded > 0) {
      size_t stream_size = 0;
      for (const auto& end : ends)
        stream_size = std::max(
            stream_size, sizeof(uint32_t) + end->max_encoded_size(stream(stream_samples(coded))));
      size += spec.per_sample ? coded * stream_size : stream_size;
    }
    most = std::max(most, size);
  }
  return most;
}

Result<BoundaryPlan> plan_boundary(const BoundarySpec& spec) {
  Result<CodecSchedule> schedule = CodecSchedule::parse(spec.codec);
  if (!schedule) return schedule.status();
  if (Status status = schedule.value().check_epochs("boundary", spec.steps_per_epoch); !status)
    return status;
  if (Status status =
          schedule.value().check_no_regimes("boundary", "messages between stages are not averaged");
      !status)
    return status;
  BoundaryPlan plan{.spec = spec, .schedule = std::move(schedule).value()};
  if (Status status = check_sizes(spec, plan.sample_count); !status) return status;
  for (const std::string& end : plan.schedule.ends())
    plan.ends.push_back(make_codec(end).value().codec);
  plan.follow(spec.first_step);
  if (Status status = set_memory(plan); !status) return status;
  if (Status status = check_positions(plan); !status) return status;
  if (plan.max_body() > std::numeric_limits<uint32_t>::max())
    return fail(ErrorCode::kUnsupported, spec, "messages may need more than 2^32 - 1 bytes");
  return plan;
}

}  // namespace thinwire
