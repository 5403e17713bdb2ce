// Exchanges: compressed collectives in which every rank gives gradients and gets the same mean.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/codec.h"
#include "thinwire/device_memory.h"
#include "thinwire/feedback.h"
#include "thinwire/group.h"
#include "thinwire/store.h"
#include "thinwire/stream.h"
#include "thinwire/tensor_rule.h"

namespace thinwire {

enum class DType : uint8_t { kFloat32, kBFloat16 };
enum class Device : uint8_t { kCpu, kCuda };

// Where gradients in a device's memory are compressed.
enum class CompressOn : uint8_t {
  kAuto,       // on the device where that is possible, else on the CPU
  kProcessor,  // all gradients on the CPU
  kDevice,     // all gradients on the device; an error names a stream that cannot be, and why
};

// A view of a tensor's memory, which the caller owns: the gradient before the step, the mean after
// it.
struct TensorView {
  void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = Device::kCpu;
  DeviceQueue queue = nullptr;  // memory on a device: values are ready once the work in this queue is done
};

// Which values of the mean a rank has after a step.
enum class Results : uint8_t {
  kFull,   // all of it
  kShard,  // those that it owns, Exchange::owned: half the bytes, no codec between sum and mean
};

struct ExchangeOptions {
  // For example "topk:density=0.01". It may be a schedule: options follow a parameter schedule (a course), and
  // codecs follow each other, "fp32 | 1: topk:density=warmup(0.001;4)": docs/memories.md,
  // Schedules. Memories are kept across changes. With an accordion it also follows the norms of what
  // each stream is delivered.
  // "auto" is for make_auto_exchange: thinwire/auto_codec.h.
  std::string codec = "fp32";
  uint64_t steps_per_epoch = 1;   // length of an epoch in schedules; 0: unknown, epochs are refused
  uint64_t first_step = 0;        // of a resumed run, as for set_step
  std::string feedback = "auto";  // auto: the codec's default, docs/codecs.md
  // One of dense, scatter-reduce, gather, sparse-reduce, low-rank, shared-index, library;
  // docs/collectives.md.
  std::string method = "auto";
  // How contributions become one result: "mean"; or a robust rule, which tolerates f ranks that send any
  // finite values, "median", "trimmed_mean:f=1", "mean_around_median:f=1" coordinate by coordinate,
  // "cge:f=1", "krum:f=1,m=1", "multi_krum:f=1", "bulyan:f=1", "mda:f=1" or "geometric_median" of
  // the contributions to all tensors. Rules other than the mean require scatter-reduce or gather;
  // docs/robust.md.
  std::string combine = "mean";
  // Whether ranks may set weights and sit out steps: Exchange::set_weight and abstain. It costs
  // each rank n - 1 messages of 16 bytes a step, for which the first bucket waits.
  bool weighted = false;
  // Whether ranks tell each other in every step what their memories owe: StepReport::owed, and LostRank says it as of
  // the last step. It costs each rank a pass over its memories and n - 1 messages of 32 bytes a step, those of
  // `weighted` included, for which the first bucket waits. Ranks that fail are not left out then, whatever the rule.
  bool debts = false;
  // Ranks per group, for a hierarchy of two levels; consecutive ranks are a group, such as those of
  // one machine. Groups of more than 1 add their gradients uncompressed inside, and their means are
  // exchanged between groups with codec, memory and method: docs/collectives.md, Hierarchy. It must
  // divide the number of ranks. Results are full, ranks count alike, no memory follows the mean.
  int inside = 1;
  // Of several exchanges, the columns of a grid, whose steps count together or not at all. Each has tensors of its
  // own, such as the shards of a sharded model: rank r of the group is rank r / columns of column r mod columns, and
  // averages with the ranks of its column. Names, kinds and options are the same in all columns, shapes may differ.
  // A fault in one column skips the step in all. It must divide the number of ranks. Requires inside = 1, full
  // results, ranks that count alike: docs/collectives.md, Columns.
  int columns = 1;
  // Shards require scatter-reduce or dense, and a memory that does not follow the mean (not ef21).
  // All codecs of a schedule must have the same block size.
  Results results = Results::kFull;
  // Of shards, the rank that owns each tensor, in their order: for callers whose ranks keep what they chose, such as
  // the rows of a matrix. Empty: the exchange cuts every tensor into shards. Requires grouping tensor.
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
  // Whether a step that counts stays open to be taken back: its means are given, but memories and encoders keep both
  // states until Exchange::settle. For callers that decide later whether they use the means. Requires a memory that
  // does not follow the mean (not ef21), and no accordion.
  bool hold = false;
  // Where tensors of Device::kCuda are; without it they are refused. They are copied to pinned CPU memory, compressed on
  // the CPU, and their means are copied back, all on queues of the exchange's own. Ranks may differ.
  // Where the device runs kernels (DeviceMemory::make_launcher), streams of methods gather, scatter-reduce and dense whose
  // codec and memory have a GPU implementation stay there, and little more than payloads is copied: docs/gpu.md.
  std::shared_ptr<DeviceMemory> device = nullptr;
  // With kAuto a stream is also staged if the device has no room for what its codec and memory need, or one of their kernels
  // does not compile. Every stream is tried once, before the first step, on values of its own; a step that needs more ends
  // the run (docs/gpu.md). StreamCounters::why_staged has the reason. With kDevice make_exchange and change throw
  // Error(kUnsupported) instead, on all ranks; streams of dense kinds are staged all the same. Ranks may differ.
  CompressOn compress_on = CompressOn::kAuto;
  bool norms = true;  // measure the norms of StreamCounters: one more read of each vector

  // Is called with the signal of every encoder, except those of dense kinds, before it encodes.
  // Values that are not finite are not shown. It is called on the exchange's thread, before finish
  // returns, and must not throw.
  std::function<void(const StreamSpec&, const Signal&, const Call&)> observe = {};
};

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

// What codec "auto" chose (thinwire/auto_codec.h), from a step on.
struct AutoDecision {
  uint64_t step = 0;
  std::string codec;  // "int8", or with its method, "topk:density=0.01 @ sparse-reduce"
  std::vector<std::pair<std::string, std::string>> others =
      {};           // tensors by name, with another codec
  std::string why;  // one line
};

// Why a step did not count. The code is
// - kNonFinite or kCorrupt, and `stream` names the stream;
// - kTimeout, if more ranks were silent than the rule tolerates (ExchangeOptions::combine); `stream` is a sentence that names them;
// - kOk, if no rank was at fault: `rank` asked to skip the step, or too few ranks took part, and `stream` says so.
struct Fault {
  ErrorCode code = ErrorCode::kOk;
  int rank = -1;  // the rank at fault; -1: none alone, as where the sum over ranks overflowed
  std::string stream;
};

// The request of a rank that abstains from a step.
enum class Abstention : uint8_t {
  kSitsOut,    // the others go on without it, because it has nothing
  kSkipsStep,  // the step shall count for no rank
};

// "stream 'conv1.weight' of rank 2 has a NaN or Inf"
std::string describe(const Fault& fault);

// Checks whether an exchange can be made with these options, as far as that is known without
// tensors and ranks. Errors name the choices.
Status check_exchange(const ExchangeOptions& options);

// Why the result of a step lacks a rank's values, though it took part.
enum class LeftOutFor : uint8_t {
  kSilence,       // they were not there by the deadline, or the rank is lost
  kCorruption,    // they arrived damaged, or were not what the step expects
  kNonFinite,     // they have a NaN or Inf
  kRequest,       // the rank asked to skip the step
  kDisagreement,  // the rank received other values than the others from more than f of them
  kEquivocation,  // it told different ranks different things
};
std::string_view to_string(LeftOutFor why) noexcept;  // "silence", "non-finite values", "its own request"

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
  // Ranks whose values the result lacks, ascending; the same on every rank. By method gather with a rule that
  // tolerates faulty ranks (docs/robust.md).
  std::vector<LeftOut> left_out;
  // Ranks to whose values a rule over whole vectors gave no weight, such as those that krum did not choose; ascending,
  // and the same on every rank. Rules by coordinate leave no rank out altogether. Empty if the step was skipped.
  std::vector<int> unchosen;
  uint64_t dense_bytes =
      0;  // what a dense fp32 exchange sends per rank: 2 (n-1)/n x 4 d; shards: half
  uint64_t sent_bytes = 0;     // by this rank, all bytes included
  uint64_t inside_bytes = 0;   // part of sent_bytes, to ranks of this rank's group
  uint64_t between_bytes = 0;  // the other part, to ranks of other groups; all if inside is 1
  uint64_t received_bytes = 0;
  // Of exchanges with a device: what this rank's step copied from its memory to the processor's, and back.
  uint64_t device_to_host_bytes = 0;
  uint64_t host_to_device_bytes = 0;
  double compress_seconds = 0;
  double wire_seconds = 0;  // from the first send to the last receive
  double decompress_seconds = 0;
  double wait_seconds = 0;              // time that the caller spent in finish or wait
  std::vector<StreamCounters> streams;  // in the order of Exchange::streams
};

// Values [begin, begin + count) of tensor number `tensor`.
struct OwnedRange {
  size_t tensor = 0;
  size_t begin = 0;
  size_t count = 0;
};

// start returns a ticket and wait takes it: it names the step to which the tensor belongs.
struct Ticket {
  uint64_t step = 0;
};

// A rank of an earlier group that is no member of the one that follows, and did not hand over what it owed.
struct LostRank {
  int rank = -1;  // in that group
  // The l2 norm of what its memories kept when members last told each other: in the last step with
  // ExchangeOptions::debts, else when the group was made, which make_exchange does not count.
  double owed = 0;
  uint64_t step = 0;   // the next step at that time
  uint32_t epoch = 0;  // of that group
};

// How an exchange goes on with other ranks.
struct Regrouped {
  uint32_t epoch = 0;
  uint64_t step = 0;  // the next one
  // The step that failed on this rank counted on others, and counts here: its tensors hold the means.
  std::optional<StepReport> ended = std::nullopt;
  // This rank is new, or missed steps that counted: it has the shared state of `source` now, a rank of the new group,
  // and the caller takes everything else from there that all ranks hold alike, such as weights. What it owes itself
  // stays. It is said again until a step has counted here. Ranks of which this is false hold the same already.
  bool takes_over = false;
  int source = 0;
  // The same on all members. A loss is said again until a step has counted, since some members of a group may have
  // failed before they heard of it.
  std::vector<LostRank> lost = {};
};

class Bypass;

// Averages the gradients of a fixed list of tensors, step after step, on a thread of its own.
// Streams are sent in buckets, in an order that is fixed when the exchange is built (last tensor
// first, as a backward pass makes them). The order does not depend on the order of arrival: a
// bucket is compressed and sent as soon as it and all buckets before it are complete.
// Grouping::kModel has one bucket, which is complete with the last tensor, so it cannot overlap the
// backward pass; kGlobal selects among all tensors and can (docs/global-threshold.md). One thread
// builds, uses and destroys an exchange; only wait may be called from other threads.
//
// An error other than a broken contract ends the exchange: every later call throws it again, and
// the other ranks' exchanges fail, too. Destroying an exchange in the middle of a step has the same
// effect on the other ranks.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // The gradient of tensor `index` is ready. The caller must not touch it until the step ends. Then
  // it holds the mean over ranks, with the same bits on every rank, or zeros if the step was
  // skipped. Returns at once. Throws Error(kUnsupported) for CUDA tensors if the options
  // have no device, and Error(kContract) if a tensor is started twice in a step.
  //
  // The values of a tensor on a device are ready once the work that its queue holds is done. Work that is put into that
  // queue once finish or wait has returned comes after the mean.
  virtual Ticket start(size_t index, TensorView tensor) = 0;

  // Ends the step. Tensors that were not started take part and count as zero. Returns when all
  // ranks agree that the step counts or is skipped. After options.max_skipped skipped steps in a
  // row it throws Error(kNonFinite / kCorrupt), which names the cause. It also throws the group's
  // errors.
  virtual StepReport finish() = 0;

  // Waits until the step of `ticket` has ended, and returns the report of the latest step. It is
  // for callers that start every tensor: such a step ends by itself, and finish, if called before
  // the next start, returns its report, too. May be called from any thread.
  virtual StepReport wait(Ticket ticket) = 0;

  // The streams, in the order of StepReport::streams and of frame headers; others after change. In
  // a hierarchy those of the tensors that this rank holds for its group.
  virtual const std::vector<StreamSpec>& streams() const noexcept = 0;

  // The values whose mean `rank` has in its tensors after a step that counts: in fp32 as combined,
  // rounded only if the tensor is bfloat16; its other values are undefined. The ranges of all ranks
  // hold every value once, ascending, and are the same on every rank and in every step until
  // change. Throws Error(kContract) unless results are kShard.
  virtual const std::vector<OwnedRange>& owned(int rank) const = 0;

  // Sets the number of the next step, to continue a resumed run. With a schedule of codecs, saved
  // encoders belong to the codec of options.first_step; the encoders of other codecs start afresh.
  // REQUIRES: no step under way.
  virtual void set_step(uint64_t step) = 0;

  // Sets the momentum of every tensor, in the order given to make_exchange, from the next step on,
  // and after change and regroup. It has an effect if the memory holds the momentum of an optimiser
  // (place_momentum). All ranks call it with the same values between the same two steps. Throws
  // Error(kContract) during a step.
  virtual void set_momentum(std::span<const Momentum> of_tensors) = 0;

  // Goes on with the codec, feedback, method, grouping, rules and steps_per_epoch of `options` from
  // the next step on; the other options must be those of this exchange. All ranks call it with the
  // same options between the same two steps. Memories stay. What they owe is sent by the codecs
  // that now have the tensors, even by codecs that need no memory: "auto" and an absent grouping
  // then mean those of the memory that is there. An encoder keeps its state if only the options of
  // its codec differ. A mistake is thrown on all ranks, which then go on as before: kMismatch if
  // ranks differ; kBadOption if a memory that is named is not the one that holds what is owed, or
  // if rules would part tensors that share one. Throws Error(kContract) during a step.
  virtual void change(const ExchangeOptions& options) = 0;

  // The options that it has now. An exchange made with them goes on alike from a saved state.
  virtual const ExchangeOptions& options() const noexcept = 0;

  // Sets the weight of this rank's gradients in the means of the next steps; it is 1 until set. The
  // mean is the sum over ranks of w_r x_r, divided by the sum of w_r. A use is batches of different
  // sizes. Rules other than the mean, and codecs whose values are votes, count every rank that
  // takes part once. Each rank sets its own weight, whenever it likes between steps. Throws
  // Error(kContract) during a step, for a weight that is not finite and above 0, and if the
  // exchange is not weighted.
  virtual void set_weight(double weight) = 0;

  // This rank abstains from the next step. Its tensors count as nothing, whatever they hold. Its
  // memories and encoders stay as they are, and it sends no values; encoders that agree on factors
  // or positions follow the other ranks. It still starts its tensors, and they receive:
  //
  //   kSitsOut     the mean of the ranks that take part. If all sit out, the step is skipped, with
  //                participants = 0; likewise if fewer take part than the rule `combine` needs.
  //                Requires a weighted exchange.
  //   kSkipsStep   zeros: the step is skipped on all ranks, and the report names this one. Possible
  //                in any exchange. Where faulty ranks are left out (StepReport::left_out), one that
  //                asks is left out, too, and the step counts unless too many ask.
  //
  // Neither counts as a bad step. Throws Error(kContract) during a step, and for kSitsOut in an
  // exchange that is not weighted.
  virtual void abstain(Abstention what) = 0;

  // Sets whether ranks may sit out and set weights, from the next step on; it is
  // ExchangeOptions::weighted until set. All ranks call it with the same value between the same two
  // steps. In an exchange that is not weighted all weights are 1. Throws Error(kContract) during a
  // step, and the error of make_exchange if a memory does not allow it.
  virtual void set_weighted(bool weighted) = 0;

  // With ExchangeOptions::hold: whether the last step counts. If not, its memories and encoders return to the state
  // before, to the bit. Required before the next step. Each rank calls it for itself, but ranks must come to the same.
  // If the step failed on this rank, false gives it up, and true leaves it to regroup. Without such a step it does
  // nothing.
  virtual void settle(bool counts) = 0;

  // Between two steps: ranks with `leaves` hand what their memories owe to the next rank that stays, uncompressed. All
  // ranks call it; then those that stay call regroup without the others, whose exchanges are of no more use. Throws
  // Error(kContract) if nobody stays.
  virtual void hand_over(bool leaves) = 0;

  // Goes on with the ranks of `group` instead, with the same store, between two steps or after a rank was lost. All of
  // them call it, or join_exchange. `epoch` is the same on all, and higher than before; frames carry it, so that
  // messages of earlier groups are refused. `group` must outlive the exchange.
  //
  // A step that failed is settled first. It counts where any member has counted it, since then all ranks had encoded
  // everything; else it is taken back on all, and its tensors become zero. Its tensors must still be there.
  // What ranks owe to the mean together stays as it is: if n ranks become m, each one's memories are multiplied by
  // m / n. The weight of a rank is 1 again.
  //
  // Throws Error(kMismatch) on all members if their options, tensors or epochs differ. After an error, also of a rank
  // that is lost meanwhile, it may be called again, with another group and a higher epoch. Throws Error(kUnsupported)
  // with inside or columns above 1 and after a failed step of tensors in a device's memory, and Error(kContract) during
  // a step.
  virtual Regrouped regroup(Group& group, uint32_t epoch) = 0;

  // All that codec "auto" decided, the first decision first; with a codec of the caller's own, none. The last one
  // holds. The same on all ranks.
  virtual const std::vector<AutoDecision>& decisions() const noexcept;

  // For steps whose means the caller forms itself (thinwire/auto_codec.h): with codec "auto"; else null.
  virtual Bypass* bypass() noexcept { return nullptr; }
};

// Builds the exchange, with a codec other than "auto". Throws Error(kMismatch), which names the first difference, unless all ranks
// agree on tensors, options and version.
//
// Memories are opened in `store` as "<stream>/feedback" and "<stream>/encoder", and by
// scatter-reduce and sparse-reduce also as "<stream>/owner". Grouping::kGlobal has
// "<first stream>/threshold", and a stream whose codec has an accordion "<stream>/regime". State that
// another method left there is replaced. In a hierarchy a rank has the memories of the tensors that
// it holds for its group, and Store::inside is set. What the owners of such a method still owe is
// added to the next gradients. `group` and `store` must outlive the exchange. `group` is split, so
// the caller may go on using it.
std::unique_ptr<Exchange> make_exchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                                        const ExchangeOptions& options);

// The same, in a group whose other ranks call Exchange::regroup or this. This rank starts with memories that owe
// nothing, and takes shared state, the step number and the count of skipped steps from a rank that has gone furthest.
// `options.generation` is the epoch; first_step counts only if all ranks are new. `how`, if given, is filled.
std::unique_ptr<Exchange> join_exchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                                        const ExchangeOptions& options, Regrouped* how = nullptr);

// The codecs that `codec` of ExchangeOptions names: one, or, for a schedule, those at the ends of
// its phases and courses. Fails if it is malformed or one of them cannot be made.
Result<std::vector<NamedCodec>> scheduled_codecs(std::string_view codec);

}  // namespace thinwire
