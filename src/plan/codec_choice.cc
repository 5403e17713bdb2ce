// Looks codecs up among the committed results, and weighs time against accuracy.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec_choice.h"

#include <algorithm>
#include <limits>

#include "thinwire/codec.h"

namespace thinwire {
namespace {

// Of two codecs with known errors: on more networks, then by fewer points on the worst of them.
bool is_milder(const std::vector<KnownAccuracy>& a, const std::vector<KnownAccuracy>& b) {
  const auto worst = [](const std::vector<KnownAccuracy>& all) {
    double points = -std::numeric_limits<double>::infinity();
    for (const KnownAccuracy& known : all) points = std::max(points, known.points);
    return points;
  };
  if (a.size() != b.size()) return a.size() > b.size();
  return worst(a) < worst(b);
}

}  // namespace

std::vector<KnownAccuracy> accuracy_of(const std::string& codec) {
  std::vector<KnownAccuracy> found;
  const std::string canonical = make_codec(codec).value().canonical;
  for (const KnownAccuracy& known : known_accuracies())
    if (make_codec(std::string(known.codec)).value().canonical == canonical) found.push_back(known);
  return found;
}

bool keeps_accuracy(const std::vector<KnownAccuracy>& known) {
  constexpr double kMost = 1;  // points
  return !known.empty() && std::all_of(known.begin(), known.end(), [](const KnownAccuracy& one) {
    return one.points <= kMost;
  });
}

bool wants_short_trial(const std::string& codec) {
  const CodecInfo& info = make_codec(codec).value().codec->info();
  return (info.sparse || info.selective) && !info.unbiased;  // the unbiased leave nothing for later
}

std::optional<size_t> choose_codec(std::span<const CodecStep> steps, double dense_seconds) {
  // Steps that differ by less are equally fast, and the milder codec is the better one.
  constexpr double kEquallyFast = 1.05;
  const auto faster = [&](std::optional<size_t> than, size_t i) {
    return !than || steps[i].seconds < steps[*than].seconds;
  };
  std::optional<size_t> fastest, fastest_safe;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (faster(fastest, i)) fastest = i;
    if (keeps_accuracy(steps[i].accuracy) && faster(fastest_safe, i)) fastest_safe = i;
  }
  std::optional<size_t> safe = fastest_safe;
  for (size_t i = 0; i < steps.size(); ++i)
    if (keeps_accuracy(steps[i].accuracy) &&
        steps[i].seconds <= kEquallyFast * steps[*fastest_safe].seconds &&
        is_milder(steps[i].accuracy, steps[*safe].accuracy))
      safe = i;
  const auto serves = [&](std::optional<size_t> i) {
    return i && dense_seconds >= kWorthwhile * steps[*i].seconds;
  };
  if (!serves(safe)) safe = fastest_safe;
  return safe && (serves(safe) || !serves(fastest)) ? safe : fastest;
}

}  // namespace thinwire
