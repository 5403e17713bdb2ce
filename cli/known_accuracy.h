// What committed results say about the accuracy of codecs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace thinwire::cli {

// Means over seeds. The codec had the memory that docs/codecs.md recommends.
struct KnownAccuracy {
  std::string_view codec;  // with the options that differ from the defaults
  std::string_view model;
  int epochs = 0;
  double points = 0;  // of error, above fp32
  int seeds = 0;
};

// All that is known: docs/results/methods.md.
std::span<const KnownAccuracy> known_accuracies();

// What is known of a codec, whatever the order of its options.
std::vector<KnownAccuracy> accuracy_of(const std::string& codec);

// "resnet20 +0.3, char-lstm +0.2"; "not known".
std::string describe_accuracy(const std::vector<KnownAccuracy>& known);

}  // namespace thinwire::cli
