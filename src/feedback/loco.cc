// loco: adds a moving average of errors, kept in eight bits and cleared now and then [Xie et al.,
// TPAMI 2025, arXiv:2407.04480].
//
//   h = g + e,   e <- beta e + (1 - beta) (h - decode(encode(h))),
//   e <- 0 after every `reset` steps
//
// The paper's codec is four bits per value with a scale per group. The average does not account for
// what was lost: at beta > 0 a share 1 - beta of an error comes back, and what is sent and kept
// does not add up to what is owed. It bounds e instead, so that eight bits hold it.
//
// e lies as a scale per 256 values and a byte each (kernel/scaled_blocks.h): a byte of its own more
// than the values that the encoder gets. Resets follow the step number, which ranks share and a
// resumed run continues.
//
// Saved are e in fp32, whose mean over ranks another number of ranks starts from, rounded to eight
// bits again, and the bytes themselves: rounding twice may move a scale by its last bit.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "core/aligned.h"
#include "feedback/feedback_rules.h"
#include "feedback/step_guard.h"
#include "kernel/axpy.h"
#include "kernel/scaled_blocks.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

constexpr const char* kError = "residual";
constexpr const char* kBytes = "bytes";
constexpr kernel::ScaledBlocks kBlocks{.block = 256, .bits = 8};

// Values that stay in cache between two passes. Moments are summed over chunks of this many, so
// that adding up those of chunks gives those of the whole.
constexpr size_t kChunk = 8192;
static_assert(kChunk % kBlocks.block == 0);

class LoCo final : public Feedback {
 public:
  LoCo(double beta, int64_t reset, size_t count)
      : beta_(static_cast<float>(beta)),
        take_(static_cast<float>(1 - beta)),
        reset_(static_cast<uint64_t>(reset)),
        error_(kBlocks.size(count)),
        values_(count),
        guard_("loco", count) {}

  Signal prepare(std::span<const float> gradient, const Call& call) override {
    guard_.prepare(gradient.size());
    resets_ = (call.step + 1) % reset_ == 0;
    std::copy(gradient.begin(), gradient.end(), values_.begin());
    Moments total;
    for_chunks([&](std::span<std::byte> error, std::span<float> values) {
      add_error(error, 1.0f, values);
      const Moments part = kernel::moments(values);
      total.abs_sum += part.abs_sum;
      total.square_sum += part.square_sum;
      total.abs_max = std::max(total.abs_max, part.abs_max);
      total.finite = total.finite && part.finite;
    });
    return {.values = values_, .fresh = gradient, .moments = total};
  }
  std::span<float> rest() noexcept override { return values_; }

  // Parts that are sent may be cut anywhere, blocks may not: so not before all of them were.
  void commit() override {
    guard_.commit();
    if (resets_) {
      std::fill(error_.begin(), error_.end(), std::byte{0});
      return;
    }
    for_chunks([&](std::span<std::byte> error, std::span<float> values) {
      kernel::scale(values, take_);
      add_error(error, beta_, values);
      kernel::quantise_blocks(values, kBlocks, error);
    });
  }
  void rollback() override { guard_.rollback(); }

  size_t held_bytes() const override { return error_.size() + values_.size() * sizeof(float); }
  StateArrays save() const override {
    AlignedVector<float> error(values_.size());
    decode(error_, error);
    return {make_state(kError, std::span<const float>(error), OnResize::kOwedToMean),
            {.name = kBytes,
             .type = StateType::kUint8,
             .shape = {error_.size()},
             .on_resize = OnResize::kCopy,
             .data = error_}};
  }

  Status load(const StateArrays& arrays) override {
    AlignedVector<float> error(values_.size());
    if (Status status = copy_state(arrays, kError, error); !status) return status;
    const StateArray* bytes = find_state(arrays, kBytes);
    if (bytes == nullptr || bytes->type != StateType::kUint8 || bytes->data.size() != error_.size())
      return Status::fail(ErrorCode::kMismatch, "loco: the bytes are missing or of another length");
    if (!std::all_of(error.begin(), error.end(), [](float e) { return std::isfinite(e); }))
      return Status::fail(ErrorCode::kMismatch, "loco: the error is not finite");
    AlignedVector<float> same(error.size());
    if (decode(bytes->data, same) && std::equal(same.begin(), same.end(), error.begin()))
      error_ = bytes->data;
    else  // a mean over ranks
      kernel::quantise_blocks(error, kBlocks, error_);
    guard_.rollback();
    return Status::ok();
  }

 private:
  // body(bytes, values) for one chunk after another.
  template <typename Body>
  void for_chunks(const Body& body) {
    size_t at = 0;
    for (size_t begin = 0; begin < values_.size(); begin += kChunk) {
      const size_t count = std::min(kChunk, values_.size() - begin);
      const size_t size = kBlocks.size(count);
      body(std::span(error_).subspan(at, size), std::span(values_).subspan(begin, count));
      at += size;
    }
  }

  static void add_error(std::span<const std::byte> error, float weight, std::span<float> values) {
    [[maybe_unused]] const bool valid = kernel::add_blocks(error, kBlocks, weight, values);
    assert(valid);  // they are this memory's own
  }

  // False where the bytes are none that this memory writes. REQUIRES: `out` is zeros.
  static bool decode(std::span<const std::byte> bytes, std::span<float> out) {
    return kernel::add_blocks(bytes, kBlocks, 1.0f, out);
  }

  const float beta_;
  const float take_;  // 1 - beta
  const uint64_t reset_;
  bool resets_ = false;           // after this step
  std::vector<std::byte> error_;  // changed by commit alone
  AlignedVector<float> values_;   // h, then what was left of it
  StepGuard guard_;
};

}  // namespace

const FeedbackEntry& loco_entry() {
  static const FeedbackEntry entry{
      .name = "loco",
      .summary = "a moving average of errors in eight bits, set to zero after every `reset` steps",
      .paper = "LoCo, TPAMI 2025, arXiv:2407.04480",
      .options = {{.name = "beta",
                   .type = OptionType::kNumber,
                   .fallback = "0.8",
                   .min = 0,
                   .max = 0.999999,
                   .help = "share of the average that stays"},
                  {.name = "reset",
                   .type = OptionType::kInteger,
                   .fallback = "1024",
                   .min = 1,
                   .max = 0x1p53,
                   .unit = "steps",
                   .help = "cleared after every so many"}},
      .make =
          [](const Options& options, const StreamSpec& stream) {
            return std::make_unique<LoCo>(options.number("beta"), options.integer("reset"),
                                          stream.count());
          },
      .owes = true};
  return entry;
}

}  // namespace thinwire
