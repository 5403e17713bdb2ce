// Runs every case on threads and condenses what came out.
// SPDX-License-Identifier: Apache-2.0
#include "recorded/exchange_results.h"

#include <algorithm>
#include <limits>
#include <set>

#include "exchange/testing/exchange_testing.h"
#include "recorded/checksum_of.h"

namespace thinwire::testing {
namespace {

constexpr uint64_t kSteps = 4;
constexpr uint64_t kSkipped = 2;  // the last rank's gradient has an infinity in this step

// What one rank has at the end.
struct Outcome {
  uint64_t means = 0;
  uint64_t state = 0;
  uint64_t sent = 0;
  uint64_t received = 0;
};

Outcome run_rank(Group& group, const ExchangeOptions& options) {
  const auto model = small_model();
  Side side(group, model, options);
  Outcome outcome;
  for (uint64_t step = 0; step < kSteps; ++step) {
    side.values = gradients(model, group.rank(), step);
    if (step == kSkipped && group.rank() == group.size() - 1)
      side.values[0][5] = std::numeric_limits<float>::infinity();
    for (size_t i = model.size(); i-- > 0;) side.start(i);
    const StepReport report = side.exchange().finish();
    for (const Values& values : side.values) mix(outcome.means, std::as_bytes(std::span(values)));
    mix(outcome.means, std::as_bytes(std::span(&report.skipped, 1)));
    outcome.sent += report.sent_bytes;
    outcome.received += report.received_bytes;
  }
  outcome.state = checksum_of(side.store().save());
  return outcome;
}

std::string text_of(const std::vector<Outcome>& ranks) {
  std::string means = hex(ranks.front().means), sent;
  uint64_t state = 0;
  for (const Outcome& rank : ranks) {
    if (rank.means != ranks.front().means) means = "differ";
    mix(state, std::as_bytes(std::span(&rank.state, 1)));
    sent += (sent.empty() ? "" : " ") + std::to_string(rank.sent);
  }
  const bool all_alike = std::all_of(ranks.begin(), ranks.end(), [&](const Outcome& rank) {
    return rank.sent == ranks.front().sent;
  });
  if (all_alike) sent = std::to_string(ranks.front().sent) + " each";
  return "means " + means + ", state " + hex(state) + ", sent " + sent;
}

std::string result_of(const ExchangeOptions& options, int ranks) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    outcomes[static_cast<size_t>(group.rank())] = run_rank(group, options);
  });
  return text_of(outcomes);
}

// Many streams and chunks: the ways through a bucket differ at its borders.
ExchangeOptions in_small_pieces(ExchangeOptions options) {
  options.bucket_bytes = 600;
  options.chunk_values = 120;
  return options;
}

std::string name_of(const ExchangeOptions& options) {
  std::string name = options.codec + " by " + options.method;
  if (options.feedback != "auto") name += ", memory " + options.feedback;
  if (options.grouping) name += ", " + std::string(to_string(*options.grouping));
  return name;
}

std::vector<ExchangeOptions> cases() {
  std::vector<ExchangeOptions> all;
  for (const ExchangeOptions& options : codecs_and_methods())
    all.push_back(in_small_pieces(options));
  for (const ExchangeOptions& one : one_per_method())
    for (const Grouping grouping : {Grouping::kModel, Grouping::kTensor}) {
      ExchangeOptions options = in_small_pieces(one);
      options.grouping = grouping;
      all.push_back(options);
    }
  for (const FeedbackEntry* entry : list_feedbacks())
    for (const std::string codec : {"topk:density=0.1", "int8"}) {
      ExchangeOptions options = in_small_pieces({.codec = codec});
      options.feedback = std::string(entry->name);
      options.method = terms_of(options).method->name;
      all.push_back(options);
    }
  return all;
}

}  // namespace

Lines exchange_results() {
  const std::set<int> of_all = {1, 2, 3, 4, 7, 8, 16};
  std::set<std::string> methods;  // those that had a codec at every number of ranks
  Lines lines;
  for (const ExchangeOptions& options : cases()) {
    const bool every_number = methods.insert(options.method).second;
    for (int ranks = 1; ranks <= 16; ++ranks)
      if (every_number || of_all.contains(ranks))
        lines.push_back(name_of(options) + ", " + std::to_string(ranks) +
                        " ranks: " + result_of(options, ranks));
  }
  return lines;
}

}  // namespace thinwire::testing
