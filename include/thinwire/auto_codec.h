// Codec "auto": an exchange that chooses the codec of each tensor by what it measures.
// docs/auto.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/status.h"
#include "thinwire/step_plan.h"

namespace thinwire {

// What codecs may lose.
enum class AllowedLoss : uint8_t {
  kNone,   // nothing: fp32 and other lossless codecs
  kSmall,  // rounding: codecs of 16 and 8 bits, too
  kAny,    // sparse and low-rank codecs with a memory, too
};
std::string_view to_string(AllowedLoss loss) noexcept;

// "auto", "auto:loss=any", "auto:plan=FILE".
struct AutoCodec {
  AllowedLoss loss = AllowedLoss::kSmall;
  std::string plan;  // file of decisions to follow, instead of deciding; empty: decide
};

// Whether a codec's text is for parse_auto.
bool is_auto(std::string_view codec) noexcept;
Result<AutoCodec> parse_auto(std::string_view codec);

// `options` with a codec of the same loss where they say "auto", by which it is decided what must
// not change in mid-run: where momentum acts, which memory holds what is owed. Others are returned
// as they are.
ExchangeOptions auto_stand_in(ExchangeOptions options);

// What auto chooses from, in the order in which they are tried: "fp32" first, each perhaps with a
// method.
std::vector<std::string> auto_candidates(AllowedLoss loss);

// Decisions as a file has them, which "auto:plan=FILE" follows: a line each, its reason in a
// comment before it. decisions_from fails with the line that it cannot read.
std::string to_text(const std::vector<AutoDecision>& decisions);
// As a run records them: with the loss that was allowed, on which memories and the place of
// momentum depend.
std::string record_text(AllowedLoss loss, const std::vector<AutoDecision>& decisions);
// "any"; empty if the text names none.
std::string_view recorded_loss(std::string_view text);
Result<std::vector<AutoDecision>> decisions_from(std::string_view text);

// Where codec "auto" gets its measurements; tests give their own. An absent one is the real one.
struct AutoSources {
  std::function<double()> clock;  // seconds
  // probe_link: the slowest of all ranks' links. `known` is the one that was found before.
  std::function<ProbedLink(Group&, double seconds, const std::optional<LinkSpec>& known)> probe;
  std::optional<CostTable>
      costs;  // of rank 0; else those of usual_cost_file, where new ones are kept
};

// Steps that bypass the exchange: another all-reduce, such as that of torch's
// DistributedDataParallel, sums the gradients that codec "auto" leaves uncompressed. It sends the
// same values without thinwire's frames, checksums and copies, and its sums may have other bits
// than thinwire's. Codec "auto" goes on measuring such steps, and decides. Used like the exchange,
// by the same threads.
class Bypass {
 public:
  virtual ~Bypass() = default;

  // Begins the next step, unless it is under way, and says whether it may bypass the exchange; the
  // same on all ranks. It may if
  // - fp32 was decided on for all tensors, and the caller has no rules;
  // - memories are absent or plain residuals, and the exchange itself has counted a step of all
  //   ranks since it last changed or met a fault;
  // - all ranks count alike, and max_skipped is not 1;
  // - on no rank are gradients in a device's memory, observed, or their norms asked for.
  // A rank that asked to skip the step takes part in it like the others; its values become zeros.
  virtual bool may_bypass() = 0;

  // The gradient of tensor `index` is ready: Exchange::start of such a step. Throws
  // Error(kContract) if the step may not bypass the exchange, or for a tensor that was started
  // before.
  virtual void start_outside(size_t index, std::span<float> values) = 0;

  // Ends the step, once the values of all tensors are sums over all ranks, and makes them means; or
  // zeros, on all ranks, if a sum is not finite or a rank asked to skip the step. A fault of a sum
  // names no rank and does not count for max_skipped; the exchange itself takes the next step, and
  // names the rank if there is a fault again. Waits for all ranks, and throws the group's errors.
  // Throws Error(kContract) unless all tensors were started.
  virtual StepReport finish_outside() = 0;

  // The sums of such a step failed on this rank: tells the others, whose finish_outside throws
  // Error(kPeerLost). The exchange is of no more use.
  virtual void abandon_outside(std::string_view why) noexcept = 0;
};

// As make_exchange. With codec "auto" it begins with fp32, or with what the probed link asks for if
// uncompressed steps would take long. It then watches the steps, and changes codecs by
// Exchange::change when others promise shorter steps: at the first `start` of a step, by agreement
// of all ranks. It keeps its decisions in `store` as "auto/decisions", with which a resumed run
// goes on. A call of Exchange::change ends that: the caller's codec stays. Throws Error(kIo) on all
// ranks if rank 0 cannot read the file of a plan.
std::unique_ptr<Exchange> make_auto_exchange(Group& group, Store& store,
                                             std::vector<TensorSpec> tensors,
                                             const ExchangeOptions& options,
                                             AutoSources sources = {});

}  // namespace thinwire
