// What committed results say about the accuracy of codecs, and which of several planned codecs to
// choose.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire {

// An error that was measured: a mean over seeds. The codec had the memory that docs/codecs.md
// recommends.
struct KnownAccuracy {
  std::string_view codec;  // with the options that differ from the defaults
  std::string_view model;
  int epochs = 0;
  double points = 0;  // of error, above fp32 with the same recipe and seeds
  int seeds = 0;
};

// All that is known: docs/results/defaults.md, and methods.md for what is not there.
std::span<const KnownAccuracy> known_accuracies();

// What is known of a codec, whatever the order of its options. Throws Error if there is no such
// codec.
std::vector<KnownAccuracy> accuracy_of(const std::string& codec);

// A step with one codec, as planned.
struct CodecStep {
  double seconds = 0;
  std::vector<KnownAccuracy> accuracy = {};
};

// A codec is worth its trouble from here on; less than that no prediction can tell.
inline constexpr double kWorthwhile = 1.02;  // times as fast as fp32

// A gain below this is worth a measurement before it is believed: predictions are mostly within 15
// % of a step (docs/results/plan.md).
inline constexpr double kClearGain = 1.05;

// Whether all that is known of a codec says that it costs at most one point.
bool keeps_accuracy(const std::vector<KnownAccuracy>& known);

// Whether the codec leaves most values for later steps, so that a learning rate that dense training
// just stands may be too high (docs/choosing.md, Learning rate). Throws Error if there is no such
// codec.
bool wants_short_trial(const std::string& codec);

// The step to choose, an index into `steps`, none of which is that of fp32. Of the codecs that keep
// accuracy, and whose steps are within 5 % of the fastest of these, it is the one whose error is
// known on most networks and is smallest there. If none of these is worth its trouble and another
// codec is, it is the fastest of all. Absent without steps.
std::optional<size_t> choose_codec(std::span<const CodecStep> steps, double dense_seconds);

}  // namespace thinwire
