// ThreadedExchange, as far as its ranks change: regroup, hand_over and settle.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/check.h"
#include "core/checksum.h"
#include "exchange/engine/make_exchange.h"
#include "exchange/engine/make_runner.h"
#include "exchange/engine/threaded_exchange.h"
#include "exchange/layout/plan.h"
#include "exchange/members/state_messages.h"
#include "exchange/state/stream_keys.h"
#include "exchange/step/message_tags.h"
#include "exchange/step/verdict.h"
#include "exchange/terms/agreement_text.h"
#include "thinwire/agreement.h"

namespace thinwire {
namespace {

uint64_t limit_of(const std::vector<TensorSpec>& tensors) {
  return state_limit(total_count(tensors));
}

void check_generation(const RollCall& call, uint32_t generation) {
  for (size_t rank = 0; rank < call.members().size(); ++rank) {
    const Member& member = call.members()[rank];
    if (member.size > 0 && member.generation >= generation)
      throw AgreedError(ErrorCode::kMismatch, "regroup: generation " + std::to_string(generation) +
                                                  " does not follow generation " +
                                                  std::to_string(member.generation) +
                                                  ", in which rank " + std::to_string(rank) +
                                                  " was; generations only grow");
  }
}

// The order of a loss's numbers in a message.
enum LossField : size_t { kLostRank, kLastStep, kLastGeneration, kStoreId, kLossFields };

constexpr const char *kLossNumbers = "lost/numbers", *kLossOwed = "lost/owed";

StateArrays to_arrays(const std::vector<KnownLoss>& losses) {
  std::vector<int64_t> numbers(losses.size() * kLossFields);
  std::vector<double> owed(losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto& [lost, store] = losses[i];
    int64_t* const row = numbers.data() + i * kLossFields;
    row[kLostRank] = lost.rank;
    row[kLastStep] = static_cast<int64_t>(lost.step);
    row[kLastGeneration] = lost.generation;
    row[kStoreId] = static_cast<int64_t>(store);
    owed[i] = lost.owed;
  }
  return {make_state(kLossNumbers, std::span<const int64_t>(numbers), OnResize::kShared),
          make_state(kLossOwed, std::span<const double>(owed), OnResize::kShared)};
}

// Throws Error(kCorrupt) unless both arrays are there, and have numbers of equally many losses.
std::vector<KnownLoss> losses_from(const StateArrays& arrays) {
  const StateArray* found = find_state(arrays, kLossOwed);
  std::vector<double> owed(found == nullptr ? 0 : found->data.size() / sizeof(double));
  std::vector<int64_t> numbers(owed.size() * kLossFields);
  if (!copy_state(arrays, kLossOwed, std::span(owed)) ||
      !copy_state(arrays, kLossNumbers, std::span(numbers)))
    throw Error(ErrorCode::kCorrupt,
                "regroup: the message that says which ranks are lost has a wrong size");
  std::vector<KnownLoss> losses;
  for (size_t i = 0; i < owed.size(); ++i) {
    const int64_t* const row = numbers.data() + i * kLossFields;
    losses.push_back({.lost = {.rank = static_cast<int>(row[kLostRank]),
                               .owed = owed[i],
                               .step = static_cast<uint64_t>(row[kLastStep]),
                               .generation = static_cast<uint32_t>(row[kLastGeneration])},
                      .store = static_cast<uint64_t>(row[kStoreId])});
  }
  return losses;
}

}  // namespace

ThreadedExchange::ThreadedExchange(Store& store, std::vector<TensorSpec> tensors,
                                   ExchangeOptions options)
    : store_(store),
      tensors_(std::move(tensors)),
      options_(std::move(options)),
      staging_(options_.device ? std::make_unique<Staging>(options_.device, tensors_) : nullptr),
      intake_(Plan{}, tensors_, staging_.get()) {
  intake_.restart(options_.first_step);
}

void ThreadedExchange::settle(bool counts) {
  if (last_step_ == LastStep::kNothing) return;
  if (last_step_ == LastStep::kHeld) {
    intake_.between_steps("settle", [&] { runner_->settle(counts); });
    verdict_word_ = runner_->word();
    if (counts) waits_for_first_step_ = false;
    last_step_ = LastStep::kNothing;
    return;
  }
  THINWIRE_CHECK(intake_.has_failed(), "exchange: settle while a step is under way");
  if (counts) return;  // regroup finds whether it does
  if (thread_.joinable()) stop_thread();
  take_step_back();
  last_step_ = LastStep::kNothing;
}

// Tensors become zero, those too whose bucket had not begun.
void ThreadedExchange::take_step_back() {
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor)
    if (const TensorView view = intake_.view(tensor); view.data != nullptr)
      runner_->open(tensor, view);
  runner_->settle(false);
}

// Each rank that leaves sends all that it owes to the next that stays.
void ThreadedExchange::hand_over(bool leaves) {
  require_settled();
  intake_.between_steps("hand_over", [&] {
    Group& group = *group_;
    const auto n = static_cast<size_t>(group.size()), me = static_cast<size_t>(group.rank());
    const uint8_t mine = leaves ? 1 : 0;
    std::vector<uint8_t> leaving(n);
    group.all_gather(byte_view(mine), std::as_writable_bytes(std::span(leaving)));
    THINWIRE_CHECK(std::count(leaving.begin(), leaving.end(), 0) > 0,
                   "hand_over: all ranks leave, so that nobody takes what is owed");
    const auto heir_of = [&](size_t rank) {
      size_t heir = (rank + 1) % n;
      while (leaving[heir] != 0) heir = (heir + 1) % n;
      return heir;
    };
    // No heir adds anything before every heir has received what it inherits: a failure until then
    // leaves every debt where it was. One in the second on_all may leave a debt both with who
    // leaves and with its heir.
    std::vector<StateArrays> inherited;
    on_all(group, "handed over", [&] {
      if (leaves) {
        const std::vector<std::byte> state = pack_state(store_.save_owed());
        const uint64_t size = state.size();
        const int heir = static_cast<int>(heir_of(me));
        const std::unique_ptr<Transfer> both[] = {group.send(byte_view(size), heir, kOwedSizeTag),
                                                  group.send(state, heir, kOwedStateTag)};
        group.wait(both);
      }
      for (size_t rank = 0; rank < n; ++rank) {
        if (leaving[rank] == 0 || heir_of(rank) != me || rank == me) continue;
        uint64_t size = 0;
        group.wait(group.receive(writable_byte_view(size), static_cast<int>(rank), kOwedSizeTag));
        check_state_size(size, limit_of(tensors_), static_cast<int>(rank));
        std::vector<std::byte> state(size);
        group.wait(group.receive(state, static_cast<int>(rank), kOwedStateTag));
        inherited.push_back(unpack_state(state).value());
      }
    });
    on_all(group, "handed over", [&] {
      for (const StateArrays& owed : inherited) store_.add_owed(owed).or_throw();
    });
    if (leaves) store_.drop_owed();  // a later exchange may go on with the store
    for (size_t rank = 0; rank < n; ++rank)
      handed_over_[rank] = handed_over_[rank] || leaving[rank] != 0;
  });
}

Member ThreadedExchange::member() const {
  return {
      .step = intake_.next_step(),
      .verdict_word = verdict_word_,
      .skipped = static_cast<uint64_t>(skipped_in_a_row_),
      .store = store_.identity(),
      .generation = generation_,
      .rank = rank_,
      .size = size_,
      .voted = static_cast<uint16_t>(last_step_ == LastStep::kVoting && !runner_->outlives_ranks()),
      .waits_for_first_step = static_cast<uint16_t>(waits_for_first_step_)};
}

Regrouped ThreadedExchange::regroup(Group& group, uint32_t generation) {
  if (options_.inside != 1 || options_.columns != 1)
    throw Error(ErrorCode::kUnsupported,
                "regroup: the ranks of a hierarchy, or of columns, cannot change; choose inside = "
                "1 and columns = 1");
  if (staging_ != nullptr && intake_.has_failed())
    throw Error(ErrorCode::kUnsupported,
                "regroup: what a failed step still gives cannot be copied back to a device's "
                "memory; make a new exchange");
  if (!intake_.has_failed()) {
    require_settled();
    intake_.between_steps("regroup", [] {});
  }
  if (thread_.joinable()) stop_thread();
  try {
    return regroup_now(group, generation);
  } catch (...) {
    intake_.fail(std::current_exception());
    throw;
  }
}

Regrouped ThreadedExchange::regroup_now(Group& group, uint32_t generation) {
  check_rank_count(group, "exchange");
  const auto me = static_cast<size_t>(group.rank());
  const RollCall call(group, member());
  ExchangeOptions options = options_;
  options.generation = generation;
  if (call.furthest().size > 0) options.first_step = call.furthest().step;
  // What members said of themselves came without a seal.
  const uint64_t said = checksum(std::as_bytes(std::span(call.members())));
  require_agreement(group, "regroup",
                    agreement_text(options, tensors_) + "members " + std::to_string(said) + "\n");
  check_generation(call, generation);
  Sections sections = check_for_group(options, tensors_, group.size());

  Regrouped how{.generation = generation,
                .step = options.first_step,
                .takes_over = call.is_behind(me),
                .source = static_cast<int>(call.source())};
  hear_debts();
  std::vector<KnownLoss> losses = share_losses(group, call);
  for (const KnownLoss& loss : losses) how.lost.push_back(loss.lost);
  end_failed_step(call, me);
  options_ = std::move(options);
  sections_ = std::move(sections);
  store_.follow_ranks(memories_scaled_for_ranks_, static_cast<size_t>(group.size()));
  memories_scaled_for_ranks_ = static_cast<size_t>(group.size());
  // Memories that follow the mean begin with it now (ef21), so that the means of owners lack
  // nothing.
  std::set<std::string> no_longer_owed;
  if (runner_ != nullptr)
    for (const StreamSpec& stream : runner_->streams())
      if (store_.shares_state(feedback_key(stream.name)))
        no_longer_owed.insert(owner_key(stream.name));
  if (!no_longer_owed.empty())
    store_.drop_owed([&](const std::string& key) { return no_longer_owed.contains(key); });
  build(group);
  share_state(group, call, me);
  runner_->compare_shared(group);
  count_debts(group, how.step);

  how.ended = std::exchange(ended_, std::nullopt);
  unconfirmed_losses_ = std::move(losses);
  store_ids_.clear();
  for (const Member& one : call.members()) store_ids_.push_back(one.store);
  losses_confirmed_ = false;
  waits_for_first_step_ = how.takes_over;
  group_ = &group;
  generation_ = generation;
  rank_ = group.rank();
  size_ = group.size();
  skipped_in_a_row_ = static_cast<int>(call.furthest().skipped);
  intake_.restart(how.step);
  intake_.follow(runner_->plan());
  follow();
  start_thread();
  return how;
}

// Those on which the step counted have the verdict; those that voted have all of the step. If this
// call of regroup fails later, the step has ended all the same, and the next one says so.
void ThreadedExchange::end_failed_step(const RollCall& call, size_t me) {
  if (last_step_ == LastStep::kNothing) return;
  if (call.counted_elsewhere(me)) {
    ended_ = runner_->conclude(call.furthest().verdict_word);
    verdict_word_ = call.furthest().verdict_word;
    if (options_.hold && !ended_->skipped) runner_->settle(true);
    intake_.restart(call.furthest().step);
  } else {
    take_step_back();
  }
  last_step_ = LastStep::kNothing;
}

// What follows may fail, and must not find the queue of the runner that is gone.
void ThreadedExchange::build(Group& group) {
  Channels channels = split_levels(group, options_);
  std::unique_ptr<Runner> runner;
  on_all(group, "made",
         [&] { runner = make_runner(sections_, options_, tensors_, std::move(channels), store_); });
  runner_ = std::move(runner);
  tell_streams();
}

// Objects of the store must be there before they can take anything; what they take may choose other
// codecs.
void ThreadedExchange::share_state(Group& group, const RollCall& call, size_t me) {
  bool any = false;
  for (size_t rank = 0; rank < call.members().size(); ++rank) any = any || call.is_behind(rank);
  if (!any) return;
  const auto source = static_cast<int>(call.source());
  const std::vector<std::byte> bytes =
      broadcast_state(group, store_.save_shared(), source, limit_of(tensors_));
  StateArrays shared;
  on_all(group, "brought up to date", [&] { shared = unpack_state(bytes).value(); });
  const auto take = [&](const StateArrays& arrays) {
    on_all(group, "brought up to date", [&] {
      if (!call.is_behind(me)) return;
      store_.take_shared(arrays).or_throw();
      store_.follow_ranks(memories_scaled_for_ranks_, memories_scaled_for_ranks_);
    });
  };
  StateArrays regimes = shared;
  std::erase_if(regimes, [&](const StateArray& array) { return !is_regime_array(array.name); });
  if (!regimes.empty()) {
    take(regimes);
    build(group);
  }
  take(shared);
}

// What ranks told in the last step is newer than what they told when the group was made.
void ThreadedExchange::hear_debts() {
  if (runner_ == nullptr) return;
  for (const std::optional<LostRank>& told : runner_->debts()) {
    if (!told || static_cast<size_t>(told->rank) >= last_told_debts_.size()) continue;
    LostRank& debt = last_told_debts_[static_cast<size_t>(told->rank)];
    debt.owed = told->owed;
    debt.step = told->step;
  }
}

// The witness says who is lost, so that all members report the same. It knows of losses that others
// have not heard of, where it alone came into the last group.
std::vector<KnownLoss> ThreadedExchange::share_losses(Group& group, const RollCall& call) const {
  if (call.witness() == call.members().size()) return {};  // all are new
  std::vector<KnownLoss> losses;
  if (static_cast<int>(call.witness()) == group.rank()) {
    for (const KnownLoss& loss : unconfirmed_losses_)
      if (!losses_confirmed_ && !call.has(loss.lost.generation, loss.lost.rank, loss.store))
        losses.push_back(loss);
    for (const int rank : call.absent(store_ids_))
      if (const auto r = static_cast<size_t>(rank); !handed_over_[r])
        losses.push_back({.lost = last_told_debts_[r], .store = store_ids_[r]});
  }
  const std::vector<std::byte> bytes = broadcast_state(
      group, to_arrays(losses), static_cast<int>(call.witness()), limit_of(tensors_));
  on_all(group, "told who is lost", [&] { losses = losses_from(unpack_state(bytes).value()); });
  return losses;
}

void ThreadedExchange::count_debts(Group& group, uint64_t step) {
  const double mine = store_.owed_norm();
  std::vector<double> all(static_cast<size_t>(group.size()));
  group.all_gather(byte_view(mine), std::as_writable_bytes(std::span(all)));
  last_told_debts_.clear();
  for (const double owed : all)
    last_told_debts_.push_back({.rank = static_cast<int>(last_told_debts_.size()),
                                .owed = owed,
                                .step = step,
                                .generation = options_.generation});
  handed_over_.assign(all.size(), false);
}

}  // namespace thinwire
