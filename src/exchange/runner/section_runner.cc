// SectionRunner: makes a new method when the codec changes, and returns owners' debts.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/runner/section_runner.h"

#include <algorithm>

#include "exchange/layout/range.h"
#include "exchange/state/stream_keys.h"
#include "stream/memory_slot.h"

namespace thinwire {

SectionRunner::SectionRunner(const Section& section, std::vector<Bucket> buckets, int first_tag,
                             const Shared& shared)
    : options_(section.options),
      combine_(section.terms.combine),
      schedule_(CodecSchedule::parse(options_.codec).value()),
      codecs_(codecs_at(options_.first_step)),
      buckets_(std::move(buckets)),
      first_tag_(first_tag),
      shared_(shared) {
  for (const Bucket& bucket : buckets_)
    for (const Piece& piece : bucket) {
      ActiveStream* const stream = shared_.streams[piece.stream].get();
      if (streams_.empty() || streams_.back() != stream) streams_.push_back(stream);
    }
  if (section.terms.grouping == Grouping::kGlobal) open_threshold();
  critical_ = critical_streams();
  make_method(section.terms);
}

SectionRunner::StreamTerms SectionRunner::terms_of(const Section& section,
                                                   const PlannedStream& stream, Store& store) {
  const ExchangeOptions& options = section.options;
  if (stream.plain) return {.terms = section.terms};
  const CodecSchedule schedule = CodecSchedule::parse(options.codec).value();
  CriticalRegime* const regime =
      open_regime(schedule, options.first_step, options.steps_per_epoch, stream.spec, store);
  if (regime == nullptr || regime->critical()) return {.terms = section.terms, .regime = regime};
  return {.terms = resolve_terms(options, options.first_step, false).value(), .regime = regime};
}

SectionRunner::Codecs SectionRunner::codecs_at(uint64_t step) const {
  return {.critical = schedule_.at(step, options_.steps_per_epoch, true),
          .other = schedule_.at(step, options_.steps_per_epoch, false),
          .rule = schedule_.regime_rule(step, options_.steps_per_epoch)};
}

std::vector<bool> SectionRunner::critical_streams() const {
  std::vector<bool> critical;
  for (const ActiveStream* stream : streams_) critical.push_back(stream->is_critical());
  return critical;
}

// Where the schedule comes to a phase with an accordion, or leaves one.
void SectionRunner::follow_regimes(uint64_t step) {
  for (ActiveStream* const stream : streams_) {
    if (stream->is_plain()) continue;
    CriticalRegime* const regime =
        open_regime(schedule_, step, options_.steps_per_epoch, stream->spec(), shared_.store);
    stream->set_regime(regime);
    if (regime == nullptr) shared_.store.drop(regime_key(stream->spec().name));
  }
}

// The threshold stays when the codec changes: it describes the signals of the tensors, not the
// codec.
void SectionRunner::open_threshold() {
  const ActiveStream* first = nullptr;  // that has the first tensor of all that share the threshold
  size_t values = 0;
  for (ActiveStream* const stream : streams_) {
    if (stream->is_plain()) continue;
    if (first == nullptr || stream->tensors().front() < first->tensors().front()) first = stream;
    values += stream->spec().count();
  }
  if (first == nullptr) return;
  threshold_key_ = thinwire::threshold_key(first->spec().name);
  threshold_ = &open_memory<GlobalThreshold>(shared_.store, threshold_key_,
                                             "of " + std::to_string(values) + " values",
                                             [] { return std::make_unique<GlobalThreshold>(); });
  threshold_->rollback();  // of a step that another exchange over the same store left open
  for (ActiveStream* const stream : streams_)
    if (!stream->is_plain()) stream->set_threshold(threshold_);
  // With groups of another size, saved thresholds of several holders may be of this section's
  // tensors.
  for (const std::string& key : shared_.store.unclaimed())
    if (std::any_of(streams_.begin(), streams_.end(), [&](const ActiveStream* stream) {
          return key == thinwire::threshold_key(stream->spec().name);
        }))
      shared_.store.drop(key);
}

void SectionRunner::make_method(const Terms& terms) {
  if (threshold_ != nullptr) {
    size_t target = 0;
    for (const ActiveStream* stream : streams_) target += stream->target();
    threshold_->aim(target);
  }
  method_ = terms.method->make({.context = shared_.context,
                                .streams = shared_.streams,
                                .buckets = buckets_,
                                .store = shared_.store,
                                .combine = *combine_,
                                .bucket_bytes = options_.bucket_bytes,
                                .chunk_values = options_.chunk_values,
                                .shards = options_.results == Results::kShard,
                                .first_tag = first_tag_,
                                .roster = shared_.roster});
  take_over_debts(terms);
}

// Owners that another method or codec had, in this run or the one that was saved, owe what the mean
// lacked. Where there are none any more each gives it back to the ranks: to its own memory, or in
// its next gradient.
void SectionRunner::take_over_debts(const Terms& terms) {
  debts_.clear();
  const size_t n = shared_.context.ranks();
  for (ActiveStream* const stream : streams_) {
    const size_t count = stream->spec().count();
    const std::string key = owner_key(stream->spec().name);
    stream->set_owed(nullptr);
    if (stream->is_plain() || !shared_.store.holds(key)) continue;
    auto& memory =
        open_memory<OwnerMemory>(shared_.store, key, "residual of " + std::to_string(count), [&] {
          return std::make_unique<OwnerMemory>(count,
                                               shard_range(count, 1, n, shared_.context.rank()), n);
        });
    memory.rollback();  // of a step that another exchange over the same store left open
    stream->set_owed(&memory);
    const bool remain = options_.results == Results::kFull &&
                        terms.method->owners_remember(stream->codec(), stream->keeps_rest());
    if (!remain) {
      memory.move_to(std::vector<Range>());
      debts_.push_back({.stream = stream, .key = key, .memory = &memory});
    }
    stream->take_strays(memory);
  }
}

// A rank that is not heard keeps what it owes for its next step. The memories, empty by then on the
// others, go in a step that counts on all ranks: every rank has the same ones at any time, as
// loading at another number of ranks wants it.
void SectionRunner::end_debts(bool skipped) {
  const bool heard = !skipped && !shared_.context.left_out && !shared_.context.sits_out();
  for (const Debt& debt : debts_) heard ? debt.memory->commit() : debt.memory->rollback();
  if (skipped || !shared_.context.all_count()) return;
  for (const Debt& debt : debts_) {
    debt.stream->set_owed(nullptr);
    shared_.store.drop(debt.key);
  }
  debts_.clear();
}

bool SectionRunner::owners_owe() const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const ActiveStream* stream) {
    return !stream->is_plain() && shared_.store.holds(owner_key(stream->spec().name));
  });
}

void SectionRunner::end(bool skipped) {
  method_->end(skipped);
  const bool unheard = skipped || shared_.context.left_out;
  if (threshold_ != nullptr) unheard ? threshold_->rollback() : threshold_->commit();
  end_debts(skipped);
}

void SectionRunner::remake_method(uint64_t step) {
  make_method(resolve_terms(options_, step, true).value());
}

void SectionRunner::follow_schedule(uint64_t step) {
  if (schedule_.is_constant()) return;
  Codecs codecs = codecs_at(step);
  if (codecs == codecs_ && critical_streams() == critical_) return;
  codecs_ = std::move(codecs);
  follow_regimes(step);
  critical_ = critical_streams();
  const Terms terms = resolve_terms(options_, step, true).value();
  const Terms outside = resolve_terms(options_, step, false).value();
  for (ActiveStream* const stream : streams_)
    stream->change_codec(stream->is_critical() ? terms : outside);
  make_method(terms);
}

}  // namespace thinwire
