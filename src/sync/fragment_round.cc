// FragmentRound: begins an exchange, and keeps what came of it in numbers and values that are
// saved.
// SPDX-License-Identifier: Apache-2.0
#include "sync/fragment_round.h"

#include <algorithm>

#include "thinwire/status.h"

namespace thinwire {

std::vector<size_t> FragmentRound::offsets_of(const Place& place) {
  std::vector<size_t> all, own;
  size_t end = 0;
  for (const TensorSpec& tensor : place.tensors) {
    all.push_back(end);
    end += tensor.count();
  }
  for (const size_t index : place.own) own.push_back(all[index]);
  return own;
}

std::vector<TensorSpec> FragmentRound::own_tensors() const {
  std::vector<TensorSpec> own;
  for (const size_t index : place_.own) own.push_back(place_.tensors[index]);
  return own;
}

bool FragmentRound::numbers_make_sense() const noexcept {
  constexpr double kExact = 9007199254740992;  // 2^53
  for (size_t i = 0; i < kNumbers; ++i) {
    const double number = place_.numbers[i];
    const bool may_be_negative = i == kBegun || i == kRank;
    if (!(std::abs(number) <= kExact) || number != std::trunc(number) ||
        (number < 0 && !may_be_negative))
      return false;
  }
  return std::abs(place_.numbers[kCode]) <= 1000 && std::abs(place_.numbers[kRank]) <= 1e9;
}

void FragmentRound::connect(Group& group, Store& store, const SynchroniserOptions& options,
                            const std::string& feedback) {
  mean_ = std::make_unique<ReplicaMean>(group, store, own_tensors(), options, feedback,
                                        whole(kRounds), offsets_);
}

void FragmentRound::begin(std::span<const float> parameters, std::span<const float> origin,
                          uint64_t step) {
  mean_->begin(parameters, origin);
  origin_ = origin;
  on_the_way_ = true;
  ++number(kRounds);
  number(kBegun) = -static_cast<double>(step);
}

void FragmentRound::await() {
  if (!on_the_way_) return;
  const RoundReport report = round_report(mean_->end(origin_), 0, 0);
  on_the_way_ = false;
  number(kBegun) = static_cast<double>(begun());
  seconds_ = report.seconds;
  note(report);
  if (report.skipped || place_.arrived.empty()) return;
  size_t begin = 0;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const auto mean = mean_->mean().subspan(begin, place_.tensors[place_.own[i]].count());
    std::copy(mean.begin(), mean.end(),
              place_.arrived.begin() + static_cast<std::ptrdiff_t>(offsets_[i]));
    begin += mean.size();
  }
}

void FragmentRound::note(const RoundReport& report) {
  const auto of = [](auto value) { return static_cast<double>(value); };
  number(kSkipped) = of(report.skipped);
  number(kCode) = of(static_cast<int>(report.fault.code));
  number(kRank) = of(report.fault.rank);
  fault_ = report.fault.stream;
  const auto tensors = own_tensors();
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) {
    return "sync/" + tensor.name == report.fault.stream;
  });
  number(kTensor) = found == tensors.end() ? 0 : of(found - tensors.begin() + 1);
  number(kValues) = of(report.values);
  number(kPayloadBytes) = of(report.payload_bytes);
  number(kSentBytes) = of(report.sent_bytes);
  number(kReceivedBytes) = of(report.received_bytes);
}

void FragmentRound::require_arrived() const {
  if (place_.numbers[kBegun] > 0) return;
  throw Error(ErrorCode::kMismatch,
              begun() == 0
                  ? "synchroniser: no round of the fragment is under way"
                  : "synchroniser: the round that began after step " + std::to_string(begun()) +
                        " has no result: it was on its way when its synchroniser ended. "
                        "Settle the store before that");
}

RoundReport FragmentRound::end() {
  RoundReport report;
  report.begun = begun();
  report.skipped = number(kSkipped) != 0;
  if (report.skipped) {
    report.fault.code = static_cast<ErrorCode>(static_cast<int>(number(kCode)));
    report.fault.rank = static_cast<int>(number(kRank));
    report.fault.stream = fault_;
    if (const uint64_t tensor = whole(kTensor); 0 < tensor && tensor <= place_.own.size())
      report.fault.stream = "sync/" + place_.tensors[place_.own[tensor - 1]].name;
  }
  report.values = whole(kValues);
  report.payload_bytes = whole(kPayloadBytes);
  report.sent_bytes = whole(kSentBytes);
  report.received_bytes = whole(kReceivedBytes);
  report.seconds = seconds_;
  seconds_ = 0;
  const auto of_round = place_.numbers.subspan(kBegun);
  std::fill(of_round.begin(), of_round.end(), 0.0);
  return report;
}

}  // namespace thinwire
