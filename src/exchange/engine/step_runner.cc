// StepRunner: moves buckets forward, ends the step with the verdict, and fills the report.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/engine/step_runner.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "stream/memory_slot.h"

namespace thinwire {
StepRunner::StepRunner(Plan plan, const Terms& terms, const ExchangeOptions& options,
                       const std::vector<TensorSpec>& tensors, std::unique_ptr<Group> channel,
                       Store& store)
    : plan_(std::move(plan)),
      options_(options),
      schedule_(CodecSchedule::parse(options.codec).value()),
      codec_(schedule_.at(options.first_step, options.steps_per_epoch)),
      store_(store),
      channel_(std::move(channel)),
      tensors_(tensors),
      context_{.group = *channel_,
               .tensors = tensors_,
               .generation = options.generation,
               .call = {.seed = options.seed,
                        .salt = static_cast<uint64_t>(channel_->rank()),
                        .ranks = static_cast<uint64_t>(channel_->size())}} {
  for (size_t i = 0; i < plan_.streams.size(); ++i)
    streams_.push_back(std::make_unique<ActiveStream>(plan_.streams[i], i, terms, options, store));
  make_method(terms);
}

std::vector<SharedSum> StepRunner::shared_sums() const {
  std::vector<SharedSum> sums;
  for (const auto& stream : streams_) stream->add_shared_sums(sums);
  return sums;
}

void StepRunner::make_method(const Terms& terms) {
  method_ = terms.method->make({.context = context_,
                                .streams = streams_,
                                .buckets = plan_.buckets,
                                .store = store_,
                                .combine = *terms.combine,
                                .bucket_bytes = options_.bucket_bytes,
                                .chunk_values = options_.chunk_values});
  take_over_debts(terms);
}

// Owners that another method or codec had, in this run or the one that was saved, owe what the mean
// lacked. Where there are none any more each gives it back to the ranks, in its next gradient.
void StepRunner::take_over_debts(const Terms& terms) {
  debts_.clear();
  const size_t n = context_.ranks();
  for (const auto& stream : streams_) {
    const size_t count = stream->spec().count();
    const std::string key = stream->spec().name + "/owner";
    stream->set_owed(nullptr);
    if (stream->is_plain() || !store_.holds(key)) continue;
    auto& memory =
        open_memory<OwnerMemory>(store_, key, "residual of " + std::to_string(count), [&] {
          return std::make_unique<OwnerMemory>(count, shard_range(count, 1, n, context_.rank()), n);
        });
    stream->set_owed(&memory);
    if (terms.method->owners_remember(*stream)) continue;
    memory.move_to(std::vector<Range>());
    debts_.push_back({.stream = stream.get(), .key = key, .memory = &memory});
  }
}

void StepRunner::end_debts(bool skipped) {
  for (const Debt& debt : debts_) {
    if (skipped) {
      debt.memory->rollback();
      continue;
    }
    debt.stream->set_owed(nullptr);
    store_.drop(debt.key);
  }
  if (!skipped) debts_.clear();
}

// All ranks agreed on the schedule and count the same steps: none needs to be told.
void StepRunner::follow_schedule(uint64_t step) {
  if (schedule_.is_constant()) return;
  std::string codec = schedule_.at(step, options_.steps_per_epoch);
  if (codec == codec_) return;
  codec_ = std::move(codec);
  const Terms terms = settle(options_, step).value();
  for (const auto& stream : streams_) stream->change_codec(terms);
  make_method(terms);
}

void StepRunner::set_momentum(std::span<const Momentum> of_tensors) {
  THINWIRE_CHECK(of_tensors.size() == tensors_.size(), "exchange: not one momentum per tensor");
  std::vector<Momentum> own;
  for (const auto& stream : streams_) {
    own.clear();
    for (const size_t tensor : stream->tensors()) own.push_back(of_tensors[tensor]);
    stream->set_momentum(own);
  }
}

void StepRunner::set_weight(double weight) {
  THINWIRE_CHECK(options_.weighted, "exchange: set_weight needs ExchangeOptions::weighted");
  THINWIRE_CHECK(std::isfinite(weight) && weight > 0,
                 "exchange: a weight is above 0 and finite; a rank that has nothing abstains");
  weight_ = weight;
}

void StepRunner::abstain(Abstention what) {
  THINWIRE_CHECK(options_.weighted || what == Abstention::kSkipsStep,
                 "exchange: a rank can sit out where ExchangeOptions::weighted is set, so that the "
                 "others know of it");
  abstains_ = what;
}

void StepRunner::set_weighted(bool weighted) {
  if (weighted == options_.weighted) return;
  ExchangeOptions asked = options_;
  asked.weighted = weighted;
  settle(asked, asked.first_step).status().or_throw();
  options_.weighted = weighted;
  weight_ = 1;
}

// Rules that are given rows count every rank alike.
void StepRunner::settle_attendance() {
  const bool alike = find_combine(options_.combine)->wants_rows();
  context_.factor = alike ? 1.0f : context_.attendance.factor();
}

void StepRunner::begin(uint64_t step) {
  follow_schedule(step);  // set_step may have led elsewhere
  context_.call.step = step;
  context_.faults.clear();
  context_.gives_zeros = abstains_ == Abstention::kSkipsStep;
  if (context_.gives_zeros) context_.faults.ask_to_skip(context_.group.rank());
  context_.compress_seconds = 0;
  context_.decompress_seconds = 0;
  sent_before_ = channel_->bytes_sent();
  received_before_ = channel_->bytes_received();
  first_send_ = last_receive_ = Clock::now();
  if (options_.weighted)
    context_.attendance.begin(step, abstains_ == Abstention::kSitsOut ? 0 : weight_);
  else
    context_.attendance.begin();
  abstains_.reset();
  if (may_begin()) settle_attendance();
}

void StepRunner::begin_bucket(size_t bucket) {
  if (!has_participants()) return;
  method_->begin(bucket);
  if (bucket == 0) first_send_ = Clock::now();  // sends are the last thing that begin does
  last_receive_ = Clock::now();
}

bool StepRunner::advance() {
  if (!may_begin()) {
    const bool came = context_.attendance.advance();
    if (may_begin()) settle_attendance();
    return came;
  }
  const bool moved = method_->advance();
  if (moved) last_receive_ = Clock::now();
  return moved;
}

std::string StepRunner::awaited() const {
  const Transfer* transfer = may_begin() ? method_->awaited() : context_.attendance.awaited();
  return transfer != nullptr ? transfer->describe() : "nothing";
}

StepReport StepRunner::end() {
  const uint64_t word = channel_->max(context_.faults.word());
  const Verdict verdict = unpack_verdict(word);
  const bool known = verdict.code == ErrorCode::kNonFinite || verdict.code == ErrorCode::kCorrupt ||
                     (verdict.asked ? verdict.rank < channel_->size() : word == 0);
  if (!known || (verdict.code != ErrorCode::kOk && verdict.stream >= streams_.size()))
    throw Error(ErrorCode::kCorrupt, "exchange: a rank's verdict on the step makes no sense");
  StepReport report;
  report.step = context_.call.step;
  report.participants = context_.attendance.count();
  report.skipped = verdict.code != ErrorCode::kOk || verdict.asked || !has_participants();
  if (verdict.code != ErrorCode::kOk)
    report.fault = {.code = verdict.code,
                    .rank = verdict.rank,
                    .stream = streams_[verdict.stream]->spec().name};
  else if (verdict.asked)
    report.fault.rank = verdict.rank;
  method_->end(report.skipped);
  end_debts(report.skipped || context_.sits_out());
  for (const auto& stream : streams_) {
    stream->end(context_, report.skipped);
    report.streams.push_back(stream->counters());
  }
  {
    const Stopwatch watch(context_.decompress_seconds);
    tensors_.close(report.skipped);
  }
  report.dense_bytes =
      2 * (context_.ranks() - 1) * sizeof(float) * tensors_.total_count() / context_.ranks();
  report.sent_bytes = channel_->bytes_sent() - sent_before_;
  report.received_bytes = channel_->bytes_received() - received_before_;
  report.compress_seconds = context_.compress_seconds;
  report.decompress_seconds = context_.decompress_seconds;
  report.wire_seconds = std::chrono::duration<double>(last_receive_ - first_send_).count();
  follow_schedule(report.step + 1);
  return report;
}

}  // namespace thinwire
