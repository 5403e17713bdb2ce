// LevelsRunner: moves buckets from one level to the other, and brings all ranks to one verdict.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/levels/levels_runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/check.h"
#include "exchange/runner/dense_bytes.h"
#include "exchange/state/stream_keys.h"

namespace thinwire {

LevelsRunner::LevelsRunner(const Sections& sections, const ExchangeOptions& options,
                           const std::vector<TensorSpec>& tensors, Channels channels, Store& store)
    : options_(options),
      tensors_(tensors),
      all_(std::move(channels.all)),
      holder_of_(choose_holders(sections, tensors, static_cast<size_t>(options.inside))),
      held_(
          holding_of(static_cast<size_t>(channels.inside->rank()), holder_of_, sections, tensors)),
      inside_(std::move(channels.inside), tensors, holder_of_, options, store,
              all_->rank() / options.inside * options.inside),
      between_(held_.sections, options, held_.specs, std::move(channels.between), store) {
  between_.number_ranks(static_cast<int>(place()), options.inside);
  arrange(sections);
  leave_to_others(store);
}

// Streams are named after tensors or, in grouping model, as a whole.
void LevelsRunner::leave_to_others(Store& store) const {
  std::set<std::string> theirs(streams_.begin(), streams_.end());
  for (const TensorSpec& tensor : tensors_) theirs.insert(tensor.name);
  for (const StreamSpec& stream : between_.streams()) theirs.erase(stream.name);
  for (const TensorSpec& tensor : held_.specs) theirs.erase(tensor.name);
  const std::vector<std::string> all = store.unclaimed();
  const std::set<std::string> unclaimed(all.begin(), all.end());
  for (const std::string& stream : theirs)
    for (const std::string& key : stream_keys(stream)) {
      if (!store.holds(key)) continue;
      if (!unclaimed.contains(key))
        throw Error(ErrorCode::kMismatch,
                    "store: '" + key +
                        "' is in use, and another rank of the group would hold it; " +
                        "save the store on all ranks, and load it into new ones");
      store.drop(key);
    }
}

// Every rank knows the streams of all holders, so that a fault of one is named by all.
void LevelsRunner::arrange(const Sections& sections) {
  section_count_ = sections.used.size();
  streams_.clear();
  first_stream_.clear();
  stream_of_.assign(tensors_.size(), 0);
  for (size_t place = 0; place < group_size(); ++place) {
    const Holding holding = holding_of(place, holder_of_, sections, tensors_);
    const Plan plan = plan_of(holding.sections, holding.specs, options_);
    first_stream_.push_back(streams_.size());
    for (const PlannedStream& stream : plan.streams) {
      for (const size_t tensor : stream.tensors)
        stream_of_[holding.tensors[tensor]] = streams_.size();
      streams_.push_back(stream.spec.name);
    }
  }
  tensors_of_ = first_tensors_of(between_.plan());
}

// Streams share state with those of the same tensors in other groups.
void LevelsRunner::compare_shared(Group& group) {
  together(group, [&] { between_.compare_shared(between_.channel()); });
}

void LevelsRunner::set_momentum(std::span<const Momentum> of_tensors) {
  THINWIRE_CHECK(of_tensors.size() == tensors_.size(), "exchange: not one momentum per tensor");
  std::vector<Momentum> held;
  for (const size_t tensor : held_.tensors) held.push_back(of_tensors[tensor]);
  between_.set_momentum(held);
}

void LevelsRunner::check_change(const Sections& sections) const {
  check_holders(sections, tensors_, holder_of_);
}

void LevelsRunner::change(const Sections& sections) {
  held_ = holding_of(place(), holder_of_, sections, tensors_);
  between_.change(held_.sections);
  arrange(sections);
}

// The ranks that hold tensors of a section answer for all.
std::vector<bool> LevelsRunner::owners_owe() {
  std::vector<uint64_t> owe(section_count_);
  const std::vector<bool> held = between_.owners_owe();
  for (size_t i = 0; i < held.size(); ++i) owe[held_.section_ids[i]] = held[i];
  std::vector<bool> any;
  for (const uint64_t one : owe) any.push_back(all_->max(one) != 0);
  return any;
}

void LevelsRunner::abstain(Abstention what) {
  if (what == Abstention::kSitsOut) return between_.abstain(what);  // which refuses it
  asks_to_skip_ = true;
}

void LevelsRunner::begin(uint64_t step) {
  for (Group* const level : {&inside_.group(), &between_.channel()})
    level->set_deadline(all_->deadline());
  between_.begin(step);
  inside_.begin(step, asks_to_skip_);
  begun_ = begun_between_ = 0;
  handing_out_ = false;
  inside_before_ = inside_.group().bytes_sent();
  inside_received_before_ = inside_.group().bytes_received();
  first_send_ = last_receive_ = Clock::now();
}

void LevelsRunner::begin_bucket(size_t bucket) {
  inside_.begin_bucket(bucket);
  if (begun_++ == 0) first_send_ = Clock::now();
}

// Results lie in this rank's tensors before it is known whether they count; if not, they are
// zeroed.
bool LevelsRunner::advance() {
  bool moved = inside_.advance();
  moved |= begin_between();
  moved |= between_.advance();
  if (!handing_out_ && begun_ == plan().buckets.size() && inside_.summed() && between_done()) {
    between_.give_results();
    inside_.hand_out();
    handing_out_ = moved = true;
  }
  if (moved) last_receive_ = Clock::now();
  return moved;
}

// In their order, the same on all ranks.
bool LevelsRunner::begin_between() {
  const size_t before = begun_between_;
  for (; begun_between_ < tensors_of_.size() && has_means(begun_between_); ++begun_between_) {
    for (const size_t tensor : tensors_of_[begun_between_]) {
      const std::span<float> values = inside_.values(held_.tensors[tensor]);
      between_.open(tensor, {.data = values.data(), .count = values.size()});
    }
    between_.begin_bucket(begun_between_);
  }
  return begun_between_ > before;
}

bool LevelsRunner::has_means(size_t bucket) const noexcept {
  return std::all_of(tensors_of_[bucket].begin(), tensors_of_[bucket].end(),
                     [&](size_t tensor) { return inside_.has_mean(held_.tensors[tensor]); });
}

bool LevelsRunner::between_done() const noexcept {
  return begun_between_ == tensors_of_.size() && between_.idle();
}

bool LevelsRunner::idle() const noexcept {
  if (begun_ == plan().buckets.size()) return handing_out_ && inside_.handed_out();
  const bool may_begin = begun_between_ < tensors_of_.size() && has_means(begun_between_);
  return inside_.summed() && between_.idle() && !may_begin;
}

std::string LevelsRunner::awaited() const {
  if (inside_.summed() && !handing_out_) return between_.awaited();
  const Transfer* const transfer = inside_.awaited();
  return transfer != nullptr ? transfer->describe() : "nothing";
}

// Other groups wait for the holders here, and the ranks of this group for what those bring back.
bool LevelsRunner::awaits_owner() const noexcept { return inside_.summed(); }

// The worst that was found here, in the numbers of all ranks and streams.
uint64_t LevelsRunner::fault_word() const noexcept {
  FaultLog faults;
  const auto add = [&](uint64_t word, const auto& stream_of, const auto& rank_of) {
    const Verdict found = unpack_verdict(word);
    if (found.code != ErrorCode::kOk)
      faults.add(found.code, stream_of(found.stream), rank_of(found.rank));
  };
  add(
      between_.fault_word(), [&](size_t stream) { return first_stream_[place()] + stream; },
      [&](int rank) { return rank < 0 ? rank : between_.context().number_of(rank); });
  add(
      inside_.context().faults.word(),
      [&](size_t stream) { return stream_of_[plan().streams[stream].tensors.front()]; },
      [&](int rank) { return rank < 0 ? rank : inside_.context().number_of(rank); });
  if (asks_to_skip_) faults.ask_to_skip(all_->rank());
  return faults.word();
}

// Ranks at one place of all groups have the worst of their groups, and so of all.
StepReport LevelsRunner::end() {
  const uint64_t of_group =
      worst_of_all(inside_.group(), fault_word(), {.first = inside_.context().first});
  const Verdict verdict = read_verdict(
      worst_of_all(between_.channel(), of_group,
                   {.first = between_.context().first, .stride = between_.context().stride}),
      all_->size(), streams_.size(), "exchange");
  asks_to_skip_ = false;
  StepReport report =
      between_.conclude(verdict, verdict.code == ErrorCode::kOk ? "" : streams_[verdict.stream]);
  inside_.close(report.skipped);
  report.participants = static_cast<uint64_t>(all_->size());
  report.dense_bytes =
      dense_fp32_bytes(inside_.value_count(), static_cast<size_t>(all_->size()), options_.results);
  report.inside_bytes = inside_.group().bytes_sent() - inside_before_;
  report.sent_bytes = report.inside_bytes + report.between_bytes;
  report.received_bytes += inside_.group().bytes_received() - inside_received_before_;
  report.compress_seconds += inside_.context().compress_seconds;
  report.decompress_seconds += inside_.context().decompress_seconds;
  report.wire_seconds = std::chrono::duration<double>(last_receive_ - first_send_).count();
  return report;
}

}  // namespace thinwire
