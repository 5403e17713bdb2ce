// The momentum of a stream's tensors, each in its own range of values, and whether there was a step
// yet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "thinwire/momentum.h"
#include "thinwire/options.h"
#include "thinwire/state.h"
#include "thinwire/stream.h"

namespace thinwire {

inline constexpr double kLargestMomentum = 0.999999;  // 1 / (1 - momentum) is a float's

// Adjacent tensors with the same momentum are one range, so that a pass is not cut without need.
class MomentumRules {
 public:
  struct Range {
    size_t begin, count;
    Momentum momentum;

    // Its values of a vector of the whole stream.
    template <typename T>
    std::span<T> of(std::span<T> vector) const {
      return vector.subspan(begin, count);
    }
  };

  MomentumRules(const Options& options, const StreamSpec& stream) {
    for (const TensorSpec& tensor : stream.tensors) counts_.push_back(tensor.count());
    ranges_ = {{0, stream.count(), momentum_of(options)}};
    made_dampened_ = any_dampening();
  }

  static Momentum momentum_of(const Options& options) {
    return {.momentum = options.number("momentum"),
            .dampening = options.number("dampening"),
            .nesterov = options.flag("nesterov")};
  }

  void set(std::span<const Momentum> of_tensors) {
    THINWIRE_CHECK(of_tensors.size() == counts_.size(), "feedback: not one momentum per tensor");
    ranges_.clear();
    size_t begin = 0;
    for (size_t i = 0; i < counts_.size(); begin += counts_[i++]) {
      if (!ranges_.empty() && ranges_.back().momentum == of_tensors[i])
        ranges_.back().count += counts_[i];
      else
        ranges_.push_back({begin, counts_[i], of_tensors[i]});
    }
  }

  // One for the whole stream, or several.
  bool uniform() const noexcept { return ranges_.size() <= 1; }
  bool any_nesterov() const noexcept {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [](const Range& range) { return range.momentum.nesterov; });
  }

  bool any_dampening() const noexcept {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [](const Range& range) { return range.momentum.dampening != 0; });
  }

  // visit(range) for the ranges' parts in [begin, begin + count), in order.
  template <typename Visit>
  void each(size_t begin, size_t count, const Visit& visit) const {
    for (const Range& range : ranges_) {
      const size_t from = std::max(begin, range.begin);
      const size_t to = std::min(begin + count, range.begin + range.count);
      if (from < to) visit(Range{from, to - from, range.momentum});
    }
  }

  // visit(range, those of `positions` that lie in it) for the ranges of a stream of `count` values,
  // in order. Positions ascend, and count from the stream's first value.
  template <typename Visit>
  void each_at(std::span<const uint32_t> positions, size_t count, const Visit& visit) const {
    auto from = positions.begin();
    each(0, count, [&](const Range& range) {
      const auto to = std::lower_bound(from, positions.end(), range.begin + range.count);
      visit(range, std::span<const uint32_t>(from, to));
      from = to;
    });
  }

  // What a gradient is multiplied by on its way into the velocity. The first one is not dampened,
  // and without a momentum none is, as in torch.optim.SGD.
  float share(const Momentum& momentum) const noexcept {
    const bool dampened = begun_ && momentum.momentum != 0;
    return dampened ? static_cast<float>(1 - momentum.dampening) : 1.0f;
  }

  void commit() noexcept { begun_ = true; }

  // Whether there was a step yet counts where gradients are dampened, and is saved there alone:
  // also where they were when this was made, since whoever loads it is made of the same options.
  void write(StateArrays& arrays) const {
    if (!any_dampening() && !made_dampened_) return;
    arrays.push_back({.name = "begun",
                      .type = StateType::kUint8,
                      .shape = {1},
                      .on_resize = OnResize::kCopy,
                      .data = {std::byte{begun_}}});
  }
  // What `write` wrote into `begun`; adopt it once all arrays of a state were there.
  Status read(const StateArrays& arrays, bool& begun) const {
    begun = true;
    for (const StateArray& array : arrays) {
      if (array.name != "begun") continue;
      if (array.type != StateType::kUint8 || array.data.size() != 1)
        return Status::fail(ErrorCode::kMismatch, "state: 'begun' is not one byte");
      begun = array.data[0] != std::byte{0};
      return Status::ok();
    }
    if (!any_dampening()) return Status::ok();
    return Status::fail(ErrorCode::kMismatch, "state: no byte 'begun'");
  }
  void adopt(bool begun) noexcept { begun_ = begun; }

 private:
  std::vector<size_t> counts_;  // of values of each tensor
  std::vector<Range> ranges_;
  bool begun_ = false;  // a step counted
  bool made_dampened_ = false;
};

// Rows of a memory's options that MomentumRules reads.
inline std::vector<OptionInfo> momentum_rows() {
  return {{.name = "momentum",
           .type = OptionType::kNumber,
           .fallback = "0.9",
           .min = 0,
           .max = kLargestMomentum,
           .help = "share of the velocity that goes on; the optimiser's own must be 0"},
          {.name = "dampening",
           .type = OptionType::kNumber,
           .fallback = "0",
           .min = 0,
           .max = 1,
           .help = "share of every gradient but the first that does not enter the velocity"},
          {.name = "nesterov",
           .type = OptionType::kFlag,
           .fallback = "false",
           .help = "look ahead along the velocity"}};
}

// The text of the memory `velocity` with the same momentum.
inline std::string velocity_text(const Options& options) {
  return "velocity:momentum=" + options.canonical("momentum") +
         ",dampening=" + options.canonical("dampening") +
         ",nesterov=" + options.canonical("nesterov");
}

}  // namespace thinwire
