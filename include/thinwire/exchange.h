// Compressed collectives: every rank gives gradients, every rank gets the same mean.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "thinwire/codec.h"
#include "thinwire/feedback.h"
#include "thinwire/group.h"
#include "thinwire/store.h"
#include "thinwire/stream.h"
#include "thinwire/tensor_rule.h"

namespace thinwire {

enum class DType : uint8_t { kFloat32, kBFloat16 };
enum class Device : uint8_t { kCpu, kCuda };

// Memory of a tensor that stays its owner's: the gradient before, the mean after.
struct TensorView {
  void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = Device::kCpu;
};

struct ExchangeOptions {
  // "topk:density=0.01". Options may follow a course and codecs each other, "fp32 | 1:
  // topk:density=warmup(0.001;4)": docs/memories.md, Schedules. Memories go on across changes.
  std::string codec = "fp32";
  uint64_t steps_per_epoch = 1;   // what schedules count in; 0: not known, epochs are refused
  uint64_t first_step = 0;        // of a resumed run: what set_step would say
  std::string feedback = "auto";  // auto: the codec's, docs/codecs.md
  // dense, scatter-reduce, gather, sparse-reduce, low-rank, shared-index, library;
  // docs/collectives.md
  std::string method = "auto";
  // How contributions become one: mean, or median over ranks, coordinate by coordinate, which takes up to
  // (n - 1) / 2 ranks that send anything finite. Rules other than mean go with scatter-reduce and gather.
  std::string combine = "mean";
  // Whether ranks may say what they weigh and abstain from a step: Exchange::set_weight and abstain. Costs
  // a rank n - 1 messages of 16 bytes a step, which the first bucket waits for.
  bool weighted = false;
  std::optional<Grouping> grouping = std::nullopt;  // the codec's own when absent
  // Tensors that have another codec, memory and method; the first pattern that fits a name decides. Each
  // pattern must decide for a tensor. Those of dense_kinds travel as fp32 with theirs, too.
  std::vector<TensorRule> rules = {};
  std::vector<TensorKind> dense_kinds = {TensorKind::kBias, TensorKind::kNorm};  // for kTensor
  size_t bucket_bytes = size_t{1} << 20;  // dense bytes that travel together, or offers
  size_t chunk_values = size_t{1} << 15;  // of scatter-reduce: encoded, sent and added at once
  uint64_t seed = 0;
  int max_skipped = 5;      // this many bad steps in a row stop the run; 0: never
  uint32_t generation = 0;  // of the group, in every frame
  bool norms = true;        // measure the norms of StreamCounters: one more read of each vector

  // Sees what every encoder but those of dense kinds is given, before it encodes; values that are
  // not finite excepted. Called on the exchange's thread, before finish returns; must not throw.
  std::function<void(const StreamSpec&, const Signal&, const Call&)> observe = {};
};

// One stream in one step, on this rank.
struct StreamCounters {
  uint64_t values = 0;
  uint64_t kept = 0;           // values the payload carries
  uint64_t target = 0;         // values it was asked to carry; 0 when the codec sets no target
  uint64_t payload_bytes = 0;  // codec's bytes; where ranks agree on payloads, what it offered
  uint64_t frame_bytes = 0;    // headers included, but those that several streams share
  uint64_t reduced = 0;  // sparse-reduce: values of the mean that owners handed out, of all ranks
  uint64_t dense_frames = 0;  // sparse-reduce: frames sent with all values, as positions cost more
  double rest_norm = 0;       // l2 norm of what feedback kept; 0 without feedback or norms
  double gradient_norm = 0;   // l2 norm of the gradient given; 0 without norms
};

// Why a step did not count.
struct Fault {
  ErrorCode code =
      ErrorCode::kOk;  // kNonFinite or kCorrupt; kOk: ranks abstained, which is no fault
  int rank = -1;       // the culprit; -1: none alone, the sum over ranks overflowed
  std::string stream;  // where
};

// What a rank that abstains from a step asks for.
enum class Abstention : uint8_t {
  kSitsOut,    // that the others go on without it: it has nothing
  kSkipsStep,  // that the step counts for no rank
};

// "stream 'conv1.weight' of rank 2 has a NaN or Inf"
std::string describe(const Fault& fault);

// Whether an exchange can be made with these options, as far as that can be said without tensors and
// ranks; fails with the choices.
Status check_exchange(const ExchangeOptions& options);

// One step, on this rank. Times in seconds.
struct StepReport {
  uint64_t step = 0;
  bool skipped = false;
  Fault fault;                // when skipped; the same on every rank
  uint64_t participants = 0;  // ranks whose tensors were asked for: all but those that sat out
  uint64_t dense_bytes = 0;   // what a dense fp32 exchange sends per rank: 2 (n-1)/n x 4 d
  uint64_t sent_bytes = 0;    // by this rank, everything included
  uint64_t received_bytes = 0;
  double compress_seconds = 0;
  double wire_seconds = 0;  // from the first send to the last receive
  double decompress_seconds = 0;
  double wait_seconds = 0;              // the caller stood in finish or wait
  std::vector<StreamCounters> streams;  // in the order of Exchange::streams
};

// What start returns and wait takes: the step that it belongs to.
struct Ticket {
  uint64_t step = 0;
};

// Averages the gradients of a fixed list of tensors, step after step, on a thread of its own. Streams
// travel in buckets in an order fixed when it was built (last tensor first, as a backward pass makes
// them), never the order of arrival: a bucket is compressed and sent as soon as it and those before
// it are complete. Grouping::kModel has one bucket, which is complete with the last tensor, and so
// cannot overlap the backward pass. Built, used and destroyed by one thread, except for wait.
//
// An error other than a broken contract ends the exchange: every later call throws it again, and the
// other ranks' exchanges fail too. So does destroying it in the middle of a step.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // The gradient of tensor `index` is ready and must stay untouched until the step ends; then it
  // holds the mean over ranks, with the same bits on every rank, or zeros when the step was skipped.
  // Returns at once. Throws Error(kUnsupported) for CUDA tensors, Error(kContract) when started
  // twice in a step.
  virtual Ticket start(size_t index, TensorView tensor) = 0;

  // Ends the step: tensors not started count as zero, and take part. Returns when all ranks agree
  // that it counts or is skipped. Throws Error(kNonFinite / kCorrupt) naming the culprit after
  // options.max_skipped skipped steps in a row, and the group's errors.
  virtual StepReport finish() = 0;

  // Blocks until the step of `ticket` has ended, for callers that start every tensor: such a step
  // ends by itself, and finish, if called before the next start, returns its report too. From any
  // thread. The report of the latest step.
  virtual StepReport wait(Ticket ticket) = 0;

  // The streams, in the order of StepReport::streams and of frame headers.
  virtual const std::vector<StreamSpec>& streams() const noexcept = 0;

  // The next step's number: continues a resumed run. With a schedule of codecs, saved encoders are
  // those of options.first_step; others start afresh. REQUIRES: no step under way.
  virtual void set_step(uint64_t step) = 0;

  // Of every tensor in the order given to make_exchange, from the next step on, where the memory is the
  // momentum of an optimiser (place_momentum); others ignore it. Called by all ranks with the same values
  // between the same two steps. Throws Error(kContract) during a step.
  virtual void set_momentum(std::span<const Momentum> of_tensors) = 0;

  // What this rank's gradients weigh in the means of the next steps; 1 until set. The mean is the sum over
  // ranks of w_r x_r, divided by the sum of w_r: for batches of different sizes, say. Rules other than the
  // mean, and codecs whose values are votes, count every rank that takes part once. Each rank sets its own,
  // when it likes. Throws Error(kContract) during a step, for a weight that is not above 0 and finite, and
  // where the exchange is not weighted.
  virtual void set_weight(double weight) = 0;

  // This rank abstains from the next step. Its tensors count as nothing whatever they hold, its memories and
  // encoders stay as they are, and it sends no values; encoders of factors or positions that ranks agree on
  // follow the others. It starts its tensors all the same and gets what all get:
  //   kSitsOut     the mean of the ranks that do take part. If all sit out the step is skipped, with
  //                participants = 0. Needs a weighted exchange.
  //   kSkipsStep   zeros: the step is skipped on all ranks, and the report names this one. Any exchange.
  // Neither counts as a bad step. Throws Error(kContract) during a step, and where it needs more.
  virtual void abstain(Abstention what) = 0;

  // Whether ranks may sit out, from the next step on; ExchangeOptions::weighted until called. Called by all
  // ranks with the same value between the same two steps; not weighted, all weigh 1. Throws Error(kContract)
  // during a step, and what make_exchange throws where a memory does not allow it.
  virtual void set_weighted(bool weighted) = 0;
};

// Builds the exchange and makes sure that all ranks agree on tensors, options and version; throws
// Error(kMismatch) naming the first difference otherwise. Memories are opened in `store` as
// "<stream>/feedback" and "<stream>/encoder", by scatter-reduce and sparse-reduce as "<stream>/owner"
// too; what another method left there is replaced, and what such owners still owe goes into the next
// gradients. `group` and `store` must outlive it; `group` is split, so the caller may go on using it.
std::unique_ptr<Exchange> make_exchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                                        const ExchangeOptions& options);

// The codecs that `codec` of ExchangeOptions comes to: one, or, of a schedule, those at the ends of
// its phases and courses. Fails when it is wrongly written or one of them cannot be made.
Result<std::vector<NamedCodec>> scheduled_codecs(std::string_view codec);

// Throws Error(kMismatch) on every rank when `text` (lines) differs between ranks, naming the first
// line that differs from rank 0's and the rank. `what` is the subject: "recipe".
void require_agreement(Group& group, std::string_view what, std::string_view text);

}  // namespace thinwire
