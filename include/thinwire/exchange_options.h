// Options of an exchange: codec, memory, method, rule, grouping and limits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/codec.h"
#include "thinwire/device_memory.h"
#include "thinwire/status.h"
#include "thinwire/stream.h"
#include "thinwire/tensor_rule.h"

namespace thinwire {

// Where gradients in a device's memory are compressed.
enum class CompressOn : uint8_t {
  kAuto,       // on the device where that is possible, else on the CPU
  kProcessor,  // all gradients on the CPU
  kDevice,     // all gradients on the device; an error names a stream that cannot be, and why
};

// Which values of the mean a rank has after a step.
enum class Results : uint8_t {
  kFull,   // all of it
  kShard,  // those that it owns, Exchange::owned: half the bytes, no codec between sum and mean
};

struct ExchangeOptions {
  // For example "topk:density=0.01". It may be a schedule: options follow a parameter schedule (a
  // course), and codecs follow each other, "fp32 | 1: topk:density=warmup(0.001;4)":
  // docs/memories.md, Schedules. Memories are kept across changes. With an accordion it also
  // follows the norms of what each stream is delivered. "auto" is for make_auto_exchange:
  // thinwire/auto_codec.h.
  std::string codec = "fp32";
  uint64_t steps_per_epoch = 1;   // length of an epoch in schedules; 0: unknown, epochs are refused
  uint64_t first_step = 0;        // of a resumed run, as for set_step
  std::string feedback = "auto";  // auto: the codec's default, docs/codecs.md
  // One of dense, scatter-reduce, gather, sparse-reduce, low-rank, shared-index, library;
  // docs/collectives.md.
  std::string method = "auto";
  // How contributions become one result: "mean"; or a robust rule, which tolerates f ranks that
  // send any finite values, "median", "trimmed_mean:f=1", "mean_around_median:f=1" coordinate by
  // coordinate, "cge:f=1", "krum:f=1,m=1", "multi_krum:f=1", "bulyan:f=1", "mda:f=1" or
  // "geometric_median" of the contributions to all tensors. Rules other than the mean require
  // scatter-reduce or gather; docs/robust.md.
  std::string combine = "mean";
  // Whether ranks may set weights and sit out steps: Exchange::set_weight and abstain. It costs
  // each rank n - 1 messages of 16 bytes a step, for which the first bucket waits.
  bool weighted = false;
  // Whether ranks tell each other in every step what their memories owe: StepReport::owed, and
  // LostRank says it as of the last step. It costs each rank a pass over its memories and n - 1
  // messages of 32 bytes a step, those of `weighted` included, for which the first bucket waits.
  // Ranks that fail are not left out then, whatever the rule.
  bool debts = false;
  // Ranks per group, for a hierarchy of two levels; consecutive ranks are a group, such as those of
  // one machine. Groups of more than 1 add their gradients uncompressed inside, and their means are
  // exchanged between groups with codec, memory and method: docs/collectives.md, Hierarchy. It must
  // divide the number of ranks. Results are full, ranks count alike, no memory follows the mean.
  int inside = 1;
  // Of several exchanges, the columns of a grid, whose steps count together or not at all. Each has
  // tensors of its own, such as the shards of a sharded model: rank r of the group is rank r /
  // columns of column r mod columns, and averages with the ranks of its column. Names, kinds and
  // options are the same in all columns, shapes may differ. A fault in one column skips the step in
  // all. It must divide the number of ranks. Requires inside = 1, full results, ranks that count
  // alike: docs/collectives.md, Columns.
  int columns = 1;
  // Shards require scatter-reduce or dense, and a memory that does not follow the mean (not ef21).
  // All codecs of a schedule must have the same block size.
  Results results = Results::kFull;
  // Of shards, the rank that owns each tensor, in their order: for callers whose ranks keep what
  // they chose, such as the rows of a matrix. Empty: the exchange cuts every tensor into shards.
  // Requires grouping tensor.
  std::vector<int> owners = {};
  std::optional<Grouping> grouping = std::nullopt;  // the codec's default if absent
  // Rules for tensors with another codec, memory and method. The first pattern that fits a tensor's
  // name decides, and each pattern must decide for at least one tensor. Tensors of dense_kinds are
  // sent as fp32 with the tensors of their rule.
  std::vector<TensorRule> rules = {};
  std::vector<TensorKind> dense_kinds = {TensorKind::kBias, TensorKind::kNorm};  // for kTensor
  size_t bucket_bytes = size_t{1} << 20;  // dense bytes, or bytes of offers, that are sent together
  size_t chunk_values = size_t{1} << 15;  // scatter-reduce: encoded, sent and added at once
  uint64_t seed = 0;
  int max_skipped = 5;      // this many bad steps in a row stop the run; 0: never
  uint32_t generation = 0;  // of the group, in every frame; Exchange::regroup raises it
  // Whether a step that counts stays open to be taken back: its means are given, but memories and
  // encoders keep both states until Exchange::settle. For callers that decide later whether they
  // use the means. Requires a memory that does not follow the mean (not ef21), and no accordion.
  bool hold = false;
  // Where tensors of Device::kCuda are; without it they are refused. They are copied to pinned CPU
  // memory, compressed on the CPU, and their means are copied back, all on queues of the exchange's
  // own. Ranks may differ. Where the device runs kernels (DeviceMemory::make_launcher), streams of
  // methods gather, scatter-reduce and dense whose codec and memory have a GPU implementation stay
  // there, and little more than payloads is copied: docs/gpu.md.
  std::shared_ptr<DeviceMemory> device = nullptr;
  // With kAuto a stream is also staged if the device has no room for what its codec and memory
  // need, or one of their kernels does not compile. Every stream is tried once, before the first
  // step, on values of its own; a step that needs more ends the run (docs/gpu.md).
  // StreamCounters::why_staged has the reason. With kDevice make_exchange and change throw
  // Error(kUnsupported) instead, on all ranks; streams of dense kinds are staged all the same.
  // Ranks may differ.
  CompressOn compress_on = CompressOn::kAuto;
  bool norms = true;  // measure the norms of StreamCounters: one more read of each vector

  // Is called with the signal of every encoder, except those of dense kinds, before it encodes.
  // Values that are not finite are not shown. It is called on the exchange's thread, before finish
  // returns, and must not throw.
  std::function<void(const StreamSpec&, const Signal&, const Call&)> observe = {};
};

// Checks whether an exchange can be made with these options, as far as that is known without
// tensors and ranks. Errors name the choices.
Status check_exchange(const ExchangeOptions& options);

// The codecs that `codec` of ExchangeOptions names: one, or, for a schedule, those at the ends of
// its phases and courses. Fails if it is malformed or one of them cannot be made.
Result<std::vector<NamedCodec>> scheduled_codecs(std::string_view codec);

// Whether each of them decodes exactly the values that it encoded. Throws Error where
// scheduled_codecs fails.
bool is_lossless(std::string_view codec);

}  // namespace thinwire
