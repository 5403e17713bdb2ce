// Reports of an exchange's steps: counters, times, faults, and the ranks that were left out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

// Counters of one stream in one step, on this rank.
struct StreamCounters {
  uint64_t values = 0;
  uint64_t kept = 0;           // values that the payload carries
  uint64_t target = 0;         // values that it should carry; 0 if the codec sets no target
  uint64_t payload_bytes = 0;  // the codec's bytes; if ranks agree on payloads, the bytes offered
  uint64_t frame_bytes = 0;    // with headers, except those that several streams share
  uint64_t reduced = 0;  // sparse-reduce: values of the mean that owners handed out, of all ranks
  uint64_t dense_frames = 0;  // sparse-reduce: frames with all values, because positions cost more
  double rest_norm = 0;       // l2 norm of what the memory kept; 0 without memory or norms
  double gradient_norm = 0;   // l2 norm of the gradient given; 0 without norms
  std::string codec = {};     // of the stream in this step, with every option spelt out
  bool on_device = false;     // compressed in a device's memory
  std::string why_staged =
      {};  // of an exchange with a device: why not there, "there is no NVRTC"; empty where it was
};

// Why a step did not count. The code is
// - kNonFinite or kCorrupt, and `stream` names the stream;
// - kTimeout, if more ranks were silent than the rule tolerates (ExchangeOptions::combine);
//   `stream` is a sentence that names them;
// - kOk, if no rank was at fault: `rank` asked to skip the step, or too few ranks took part, and
//   `stream` says so.
struct Fault {
  ErrorCode code = ErrorCode::kOk;
  int rank = -1;  // the rank at fault; -1: none alone, as where the sum over ranks overflowed
  std::string stream;
};

// "stream 'conv1.weight' of rank 2 has a NaN or Inf"
std::string describe(const Fault& fault);

// Why the result of a step lacks a rank's values, though it took part.
enum class LeftOutFor : uint8_t {
  kSilence,       // they were not there by the deadline, or the rank is lost
  kCorruption,    // they arrived damaged, or were not what the step expects
  kNonFinite,     // they have a NaN or Inf
  kRequest,       // the rank asked to skip the step
  kDisagreement,  // the rank received other values than the others from more than f of them
  kEquivocation,  // it told different ranks different things
};
// "silence", "non-finite values" or "its own request".
std::string_view to_string(LeftOutFor why) noexcept;

struct LeftOut {
  int rank = -1;
  LeftOutFor why = LeftOutFor::kSilence;

  friend bool operator==(const LeftOut&, const LeftOut&) = default;
};

// "rank 3 was left out for silence"
std::string describe(const LeftOut& left_out);

// The report of one step, on this rank. Times are in seconds.
struct StepReport {
  uint64_t step = 0;
  bool skipped = false;
  Fault fault;                // if skipped; the same on every rank
  bool outside = false;       // its sums are those of another all-reduce (Bypass)
  uint64_t participants = 0;  // ranks that took part: all but those that sat out
  // By rank: the l2 norm of what its memories owed before this step; the same on every rank. With
  // ExchangeOptions::debts.
  std::vector<double> owed;
  // Ranks whose values the result lacks, ascending; the same on every rank. By method gather with a
  // rule that tolerates faulty ranks (docs/robust.md).
  std::vector<LeftOut> left_out;
  // Ranks to whose values a rule over whole vectors gave no weight, such as those that krum did not
  // choose; ascending, and the same on every rank. Rules by coordinate leave no rank out
  // altogether. Empty if the step was skipped.
  std::vector<int> unchosen;
  uint64_t dense_bytes =
      0;  // what a dense fp32 exchange sends per rank: 2 (n-1)/n x 4 d; shards: half
  uint64_t sent_bytes = 0;     // by this rank, all bytes included
  uint64_t inside_bytes = 0;   // part of sent_bytes, to ranks of this rank's group
  uint64_t between_bytes = 0;  // the other part, to ranks of other groups; all if inside is 1
  uint64_t received_bytes = 0;
  // Of exchanges with a device: what this rank's step copied from its memory to the processor's,
  // and back.
  uint64_t device_to_host_bytes = 0;
  uint64_t host_to_device_bytes = 0;
  double compress_seconds = 0;
  double wire_seconds = 0;  // from the first send to the last receive
  double decompress_seconds = 0;
  double wait_seconds = 0;              // time that the caller spent in finish or wait
  std::vector<StreamCounters> streams;  // in the order of Exchange::streams
};

// What codec "auto" chose (thinwire/auto_codec.h), from a step on.
struct AutoDecision {
  uint64_t step = 0;
  std::string codec;  // "int8", or with its method, "topk:density=0.01 @ sparse-reduce"
  std::vector<std::pair<std::string, std::string>> others =
      {};           // tensors by name, with another codec
  std::string why;  // one line
};

}  // namespace thinwire
