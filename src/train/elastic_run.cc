// TrainingRun, as far as workers come and go: who takes part from now on, and from where.
//
// A step that fails counts if it counted on any worker that is left, and is repeated otherwise
// (Exchange::regroup). Then all go on from the first thing after the last step that one of them has
// not done: the test, the checkpoint, the next step. Weights are equal before and after: a worker
// that comes takes them from one that was there, and all compare checksums.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checksum.h"
#include "core/first_difference.h"
#include "exchange/members/state_messages.h"
#include "thinwire/agreement.h"
#include "thinwire/survived.h"
#include "train/manifest.h"
#include "train/named_tensors.h"
#include "train/recipe_text.h"
#include "train/training_run.h"

namespace thinwire {
namespace {

constexpr int kMostTries = 20;        // to form a group, before the run ends
constexpr uint32_t kMostRepeats = 3;  // of what fails though nobody is lost, likewise
constexpr const char* kLeftBefore = "it left before the meeting at a checkpoint";

constexpr const char* kTotalsKey = "run/totals";
constexpr const char* kNumbersKey = "run/numbers";
constexpr const char* kLostKey = "run/lost";
constexpr const char* kJoinedKey = "run/joined";
constexpr const char* kReportedKey = "run/reported";

std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<int64_t> widened(const std::vector<int>& numbers) {
  return {numbers.begin(), numbers.end()};
}

std::vector<int> read_numbers(const StateArrays& arrays, const std::string& name) {
  const StateArray* found = find_state(arrays, name);
  std::vector<int64_t> wide(found == nullptr ? 0 : found->data.size() / sizeof(int64_t));
  copy_state(arrays, name, std::span(wide)).or_throw();
  return {wide.begin(), wide.end()};
}

// Where a worker is, and where its last group began if the same workers were in it.
struct Place {
  uint64_t step = 0;
  uint32_t next = 0;
  uint16_t takes_over = 0;  // says its exchange
  uint16_t has_common = 0;  // what all workers hold alike; not yet one that joins
  uint64_t begun_step = UINT64_MAX;
  uint32_t begun_next = 0;
  uint32_t repeats = 0;
};
static_assert(sizeof(Place) == 32);  // no gaps, whose bytes would be nobody's

// How many groups just before this one were of the same workers and began at the same place. One of
// them may have missed the last group: what the others sent tells all the same.
uint32_t count_repeats(const std::vector<Place>& all, uint64_t step, uint32_t next) {
  uint32_t least = UINT32_MAX;
  for (const Place& one : all) {
    if (one.begun_step != step || one.begun_next != next) return 0;
    least = std::min(least, one.repeats);
  }
  return least + 1;
}

// What a worker has: the checksum of its recipe and data, and whether it has weights.
struct Card {
  uint64_t text = 0;
  uint64_t has_common = 0;
};

std::string_view as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr const char* kNobodyHas = "elastic: no worker is left that has weights";

std::string in_words(const std::vector<int>& workers) {
  std::string text = workers.size() == 1 ? "worker " : "workers ";
  for (size_t i = 0; i < workers.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(workers[i]);
  return text;
}

}  // namespace

// The group of this worker's first meeting is there. Others may be lost before it has what it
// needs.
void TrainingRun::join() {
  try {
    form(kLeftBefore);
  } catch (const Error& error) {
    if (!Elastic::is_loss(error)) throw;
    recover(error);
  }
}

// At the boundary of a checkpoint. Rank 0 alone looks, so that all do the same.
void TrainingRun::admit() {
  std::byte waits{first() && elastic_->members().somebody_waits()};
  group().broadcast(std::span(&waits, 1), 0);
  if (waits == std::byte{0}) return;
  if (elastic_->meet(/*admit=*/true))
    form(kLeftBefore);
  else
    end_with_another();
}

// The run has ended on another worker, after messages that this one lacks.
void TrainingRun::end_with_another() {
  if (!has_common_)
    throw SurvivedError(ErrorCode::kPeerLost, "elastic: the run ended before this worker came");
  next_ = Next::kNothing;
  summary_ = own_summary(!stopped_);
  summary_->weights_xxh3 = checksum_of(named_weights(*state_.task().module));
}

// Another worker is lost, and perhaps another one while they come together.
void TrainingRun::recover(const Error& error) {
  std::string why = first_line_of(error.what());
  for (int tries = 1;; ++tries) {
    group().abort(why);  // those that do not know yet wait for a message
    try {
      if (elastic_->meet(/*admit=*/false))
        form(why);
      else
        end_with_another();
      return;
    } catch (const Error& again) {
      if (!Elastic::is_loss(again) || tries == kMostTries) throw;
      why = first_line_of(again.what());
      if (events_
              .note)  // of every worker: one that is cut off has no other that would speak for it
        events_.note("worker " + std::to_string(elastic_->members().number()) + ": attempt " +
                     std::to_string(tries) + " of " + std::to_string(kMostTries) +
                     " to go on with those that are left failed: " + why);
    }
  }
}

// Newcomers must have the recipe and the data of those that have weights. All compare in every
// group: after one that failed, some know that a newcomer has joined, and others do not.
void TrainingRun::form(const std::string& why) {
  const std::string text = agreement_text(recipe_) + agreed_text();
  const Card mine{.text = checksum(std::as_bytes(std::span(text))), .has_common = has_common_};
  std::vector<Card> all(static_cast<size_t>(group().size()));
  group().all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  const auto model =
      std::find_if(all.begin(), all.end(), [](const Card& card) { return card.has_common != 0; });
  if (model == all.end()) throw AgreedError(ErrorCode::kPeerLost, kNobodyHas);
  std::vector<bool> fits;
  for (const Card& card : all) fits.push_back(card.text == model->text);
  if (std::find(fits.begin(), fits.end(), false) != fits.end())
    part_with_others(text, fits, static_cast<size_t>(model - all.begin()));
  go_on(why);
}

// Those whose text is not that of `model` end, and the others come together again without them.
// Whoever has all texts goes on at once, and others may then not get them all. If they fit, they
// know who does not all the same, but not why.
void TrainingRun::part_with_others(const std::string& text, const std::vector<bool>& fits,
                                   size_t model) {
  const auto mine = static_cast<size_t>(group().rank());
  std::vector<std::vector<std::byte>> texts;
  std::exception_ptr failure;
  try {
    texts = group().all_gather_v(std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    if (!Elastic::is_loss(error) || !fits[mine]) throw;
    failure = std::current_exception();
  }
  std::vector<int> others;
  for (size_t rank = 0; rank < fits.size(); ++rank) {
    if (fits[rank]) continue;
    std::string how = "recipe: ranks do not agree";
    if (failure == nullptr)
      how += ": " + first_difference(as_text(texts[rank]), rank, as_text(texts[model]), model);
    if (rank == mine) throw AgreedError(ErrorCode::kMismatch, how);
    others.push_back(elastic_->members().worker_of(elastic_->generation(), static_cast<int>(rank)));
    if (std::find(refused_.begin(), refused_.end(), others.back()) != refused_.end()) continue;
    refused_.push_back(others.back());
    note(in_words({others.back()}) + " could not join: " + how);
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  throw Error(ErrorCode::kPeerLost, "elastic: " + in_words(others) + " did not fit");
}

void TrainingRun::go_on(const std::string& why) {
  const bool joins = state_.shared() == nullptr;
  if (first() && has_common_) files_.take_over(step_);
  Regrouped how;
  if (joins)
    state_.start(recipe_.options, pipeline_, tensor_, timetable_, data_, group(), 0, nullptr,
                 {.generation = elastic_->generation(), .joins = &how});
  else
    how = state_.parallel()->regroup(group(), elastic_->generation());
  if (how.ended)
    end_step(state_.shared()->conclude(*how.ended));
  else
    state_.shared()->abandon();
  if (!first()) files_.release();
  come_into_line(how, why);
  if (first()) files_.take_over(step_);

  const std::vector<LostWorker> lost = elastic_->new_losses(how.lost, why);
  for (const LostWorker& worker : lost) {
    losses_.push_back(worker);
    lost_workers_.push_back(worker.rank);
    totals_.lost_debt_squared += *worker.owed * *worker.owed;
    note("worker " + std::to_string(worker.rank) + " is lost (" + why + "); its memories owed " +
         std::to_string(*worker.owed) + " (l2 norm), which is lost too");
  }
  std::vector<int> newcomers = elastic_->newcomers();
  std::erase_if(newcomers, [&](int worker) {  // whom the source knew of before this worker
    return std::find(joined_workers_.begin(), joined_workers_.end(), worker) !=
           joined_workers_.end();
  });
  joined_.insert(joined_.end(), newcomers.begin(), newcomers.end());
  joined_workers_.insert(joined_workers_.end(), newcomers.begin(), newcomers.end());
  if (!newcomers.empty()) note(in_words(newcomers) + " joined");
  elastic_->note_joined();
  if (group().size() != ranks_told_) ranks_ = ranks_told_ = group().size();
  note(std::to_string(group().size()) + (group().size() == 1 ? " worker goes" : " workers go") +
       " on after step " + std::to_string(step_));
}

// All have the same steps behind them; who does not takes what it lacks from the first that has it.
// An exchange may be up to date on workers that the weights have not reached, and call one of them
// its source.
void TrainingRun::come_into_line(const Regrouped& how, const std::string& why) {
  Place mine{.step = step_,
             .next = static_cast<uint32_t>(next_),
             .takes_over = static_cast<uint16_t>(how.takes_over),
             .has_common = static_cast<uint16_t>(has_common_)};
  if (begun_.workers == elastic_->workers()) {
    mine.begun_step = begun_.step;
    mine.begun_next = static_cast<uint32_t>(begun_.next);
    mine.repeats = begun_.repeats;
  }
  std::vector<Place> all(static_cast<size_t>(group().size()));
  group().all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  const auto lacks = [&](const Place& one) { return one.has_common == 0 || one.step != how.step; };
  uint32_t next = static_cast<uint32_t>(Next::kEnd);
  size_t source = all.size();
  for (size_t rank = all.size(); rank-- > 0;) {
    if (all[rank].takes_over == 0 && lacks(all[rank]))
      throw AgreedError(ErrorCode::kMismatch, "elastic: rank " + std::to_string(rank) +
                                                  " has done " + std::to_string(all[rank].step) +
                                                  " steps, where the exchange has done " +
                                                  std::to_string(how.step));
    if (lacks(all[rank])) continue;
    source = rank;
    next = std::min(next, all[rank].next);
  }
  if (source == all.size()) throw AgreedError(ErrorCode::kPeerLost, kNobodyHas);
  const Beginning here{.step = how.step,
                       .next = static_cast<Next>(next),
                       .repeats = count_repeats(all, how.step, next),
                       .workers = elastic_->workers()};
  if (here.repeats == kMostRepeats) give_up_repeating(here, why);
  if (std::any_of(all.begin(), all.end(), lacks)) {
    const bool gives = source == static_cast<size_t>(group().rank());
    uint64_t values = 0;
    for (const NamedTensor& weight : named_weights(*state_.task().module))
      values += static_cast<uint64_t>(weight.tensor.numel());
    const std::vector<std::byte> bytes =
        broadcast_state(group(), gives ? pack_common() : StateArrays{}, static_cast<int>(source),
                        state_limit(values));
    if (lacks(mine)) {
      has_common_ = false;  // until all have compared
      take_common(unpack_state(bytes).value());
      step_ = how.step;
    }
  }
  next_ = here.next;
  // At the end some may have made the last test, or the checkpoint of a run that had nothing left
  // to do, and others not.
  if (next_ <= Next::kSave || next_ == Next::kEnd) files_.forget_saved();
  if (next_ == Next::kEnd) judge_.forget_judged();
  require_agreement(group(), "weights of the workers that go on",
                    hex(checksum_of(trained_weights(*state_.task().module))));
  has_common_ = true;
  begun_ = here;
}

// All do, as they count alike. A worker that is slower than the deadline, and less than two of
// them, comes to every meeting.
void TrainingRun::give_up_repeating(const Beginning& where, const std::string& why) const {
  const std::string what = where.next == Next::kStep    ? "the next step"
                           : where.next == Next::kJudge ? "the test"
                           : where.next == Next::kSave  ? "the checkpoint"
                                                        : "what follows";
  throw AgreedError(ErrorCode::kTimeout,
                    "elastic: " + what + " after step " + std::to_string(where.step) +
                        " failed again and again, though no worker is lost: " + why +
                        "; if one needs longer for it than the others by more than "
                        "exchange.deadline_seconds, raise that");
}

StateArrays TrainingRun::pack_common() {
  StateArrays arrays = state_.common();
  totals_.seconds = seconds();
  const std::string totals = totals_.to_json();
  StateArray text;
  text.name = kTotalsKey;
  text.shape = {totals.size()};
  text.data.resize(totals.size());
  std::memcpy(text.data.data(), totals.data(), totals.size());
  arrays.push_back(std::move(text));
  const std::vector<int64_t> numbers{may_stop_ ? 1 : 0, stopped_ ? 1 : 0,
                                     static_cast<int64_t>(test_told_), ranks_told_};
  arrays.push_back(make_state(kNumbersKey, std::span<const int64_t>(numbers), OnResize::kShared));
  for (const auto& [key, workers] :
       {std::pair(kLostKey, lost_workers_), std::pair(kJoinedKey, joined_workers_),
        std::pair(kReportedKey, elastic_->reported())})
    arrays.push_back(
        make_state(key, std::span<const int64_t>(widened(workers)), OnResize::kShared));
  return arrays;
}

void TrainingRun::take_common(const StateArrays& arrays) {
  state_.take_common(arrays);
  const StateArray* text = find_state(arrays, kTotalsKey);
  if (text == nullptr)
    throw Error(ErrorCode::kCorrupt, "elastic: a worker's state came without its totals");
  totals_ =
      RunTotals::from_json({reinterpret_cast<const char*>(text->data.data()), text->data.size()})
          .value();
  earlier_seconds_ = totals_.seconds;
  judge_.resume();
  std::vector<int64_t> numbers(4);
  copy_state(arrays, kNumbersKey, std::span(numbers)).or_throw();
  may_stop_ = numbers[0] != 0;
  stopped_ = numbers[1] != 0;
  test_told_ = static_cast<uint64_t>(numbers[2]);
  ranks_told_ = static_cast<int>(numbers[3]);
  lost_workers_ = read_numbers(arrays, kLostKey);
  joined_workers_ = read_numbers(arrays, kJoinedKey);
  elastic_->take_reported(read_numbers(arrays, kReportedKey));
}

}  // namespace thinwire
