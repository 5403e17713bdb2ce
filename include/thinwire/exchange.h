// Exchanges: compressed collectives in which every rank gives gradients and gets the same mean.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "thinwire/exchange_options.h"
#include "thinwire/group.h"
#include "thinwire/momentum.h"
#include "thinwire/step_report.h"
#include "thinwire/store.h"
#include "thinwire/stream.h"
#include "thinwire/tensor_view.h"

namespace thinwire {

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

// A rank of an earlier group that is no member of the one that follows, and did not hand over what
// it owed.
struct LostRank {
  int rank = -1;  // in that group
  // The l2 norm of what its memories kept when members last told each other: in the last step with
  // ExchangeOptions::debts, else when the group was made, which make_exchange does not count.
  double owed = 0;
  uint64_t step = 0;        // the next step at that time
  uint32_t generation = 0;  // of that group
};

// How an exchange goes on with other ranks.
struct Regrouped {
  uint32_t generation = 0;
  uint64_t step = 0;  // the next one
  // The step that failed on this rank counted on others, and counts here: its tensors hold the
  // means.
  std::optional<StepReport> ended = std::nullopt;
  // This rank is new, or missed steps that counted: it has the shared state of `source` now, a rank
  // of the new group, and the caller takes everything else from there that all ranks hold alike,
  // such as weights. What it owes itself stays. It is said again until a step has counted here.
  // Ranks of which this is false hold the same already.
  bool takes_over = false;
  int source = 0;
  // The same on all members. A loss is said again until a step has counted, since some members of a
  // group may have failed before they heard of it.
  std::vector<LostRank> lost = {};
};

// The request of a rank that abstains from a step.
enum class Abstention : uint8_t {
  kSitsOut,    // the others go on without it, because it has nothing
  kSkipsStep,  // the step shall count for no rank
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
  // The values of a tensor on a device are ready once the work that its queue holds is done. Work
  // that is put into that queue once finish or wait has returned comes after the mean.
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
  // Error(kContract) during a step, and Error(kBadOption) for a momentum or a dampening out of the
  // range of the memories' options; the momenta of before then stay.
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
  //                in any exchange. Where faulty ranks are left out (StepReport::left_out), one
  //                that asks is left out, too, and the step counts unless too many ask.
  //
  // Neither counts as a bad step. Throws Error(kContract) during a step, and for kSitsOut in an
  // exchange that is not weighted.
  virtual void abstain(Abstention what) = 0;

  // Sets whether ranks may sit out and set weights, from the next step on; it is
  // ExchangeOptions::weighted until set. All ranks call it with the same value between the same two
  // steps. In an exchange that is not weighted all weights are 1. Throws Error(kContract) during a
  // step, and the error of make_exchange if a memory does not allow it.
  virtual void set_weighted(bool weighted) = 0;

  // With ExchangeOptions::hold: whether the last step counts. If not, its memories and encoders
  // return to the state before, to the bit. Required before the next step. Each rank calls it for
  // itself, but ranks must come to the same. If the step failed on this rank, false gives it up,
  // and true leaves it to regroup. Without such a step it does nothing.
  virtual void settle(bool counts) = 0;

  // Between two steps: ranks with `leaves` hand what their memories owe to the next rank that
  // stays, uncompressed. All ranks call it; then those that stay call regroup without the others,
  // whose exchanges are of no more use. Throws Error(kContract) if nobody stays.
  virtual void hand_over(bool leaves) = 0;

  // Goes on with the ranks of `group` instead, with the same store, between two steps or after a
  // rank was lost. All of them call it, or join_exchange. `generation` is the same on all, and
  // higher than before; frames carry it, so that messages of earlier groups are refused. `group`
  // must outlive the exchange.
  //
  // A step that failed is settled first. It counts where any member has counted it, since then all
  // ranks had encoded everything; else it is taken back on all, and its tensors become zero. Its
  // tensors must still be there. What ranks owe to the mean together stays as it is: if n ranks
  // become m, each one's memories are multiplied by m / n. The weight of a rank is 1 again.
  //
  // Throws Error(kMismatch) on all members if their options, tensors or generations differ. After
  // an error, also of a rank that is lost meanwhile, it may be called again, with another group and
  // a higher generation. Throws Error(kUnsupported) with inside or columns above 1 and after a
  // failed step of tensors in a device's memory, and Error(kContract) during a step.
  virtual Regrouped regroup(Group& group, uint32_t generation) = 0;

  // All that codec "auto" decided, the first decision first; with a codec of the caller's own,
  // none. The last one holds. The same on all ranks.
  virtual const std::vector<AutoDecision>& decisions() const noexcept;

  // For steps whose means the caller forms itself (thinwire/auto_codec.h): with codec "auto"; else
  // null.
  virtual Bypass* bypass() noexcept { return nullptr; }
};

// Builds the exchange, with a codec other than "auto". Throws Error(kMismatch), which names the
// first difference, unless all ranks agree on tensors, options and version.
//
// Memories are opened in `store` as "<stream>/feedback" and "<stream>/encoder", and by
// scatter-reduce and sparse-reduce also as "<stream>/owner". Grouping::kGlobal has "<first
// stream>/threshold", and a stream whose codec has an accordion "<stream>/regime", and what a rule
// remembers is "<stream>/kept". State that another method left there is replaced. In a hierarchy a
// rank has the memories of the tensors that it holds for its group, and Store::inside is set. What
// the owners of such a method still owe is added to the next gradients. `group` and `store` must
// outlive the exchange. Steps use channels of their own. change, hand_over and regroup communicate
// over `group` itself: no other thread may use it during these calls.
std::unique_ptr<Exchange> make_exchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                                        const ExchangeOptions& options);

// The same, in a group whose other ranks call Exchange::regroup or this. This rank starts with
// memories that owe nothing, and takes shared state, the step number and the count of skipped steps
// from a rank that has gone furthest. `options.generation` is the generation; first_step counts
// only if all ranks are new. `how`, if given, is filled.
std::unique_ptr<Exchange> join_exchange(Group& group, Store& store, std::vector<TensorSpec> tensors,
                                        const ExchangeOptions& options, Regrouped* how = nullptr);

}  // namespace thinwire
