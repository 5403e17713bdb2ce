// StepRunner: moves buckets forward, ends the step with the verdict, and fills the report.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/runner/step_runner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "codec/codec_schedule.h"
#include "core/check.h"
#include "exchange/runner/dense_bytes.h"
#include "exchange/runner/owned_ranges.h"
#include "exchange/state/stream_keys.h"
#include "exchange/step/message_tags.h"
#include "exchange/step/stopwatch.h"
#include "thinwire/feedback.h"

namespace thinwire {

StepRunner::StepRunner(const Sections& sections, const ExchangeOptions& options,
                       const std::vector<TensorSpec>& tensors, std::unique_ptr<Group> channel,
                       Store& store)
    : options_(options),
      given_(tensors),
      store_(store),
      channel_(std::move(channel)),
      tensors_(tensors),
      context_{.group = *channel_,
               .tensors = tensors_,
               .generation = options.generation,
               .call = {.seed = options.seed,
                        .salt = static_cast<uint64_t>(channel_->rank()),
                        .ranks = static_cast<uint64_t>(channel_->size())}},
      combine_(make_combine(options.combine).value()),
      maker_(options_, combine_, store, channel_->deadline()) {
  tensors_.set_work(maker_.work());
  if (combine_.rule->over_vectors() != nullptr)
    round_ = std::make_unique<StatisticsRound>(
        context_, std::shared_ptr<const VectorRule>(combine_.rule, combine_.rule->over_vectors()));
  arrange(sections, plan_of(sections, given_, options_));
}

Runner::OnDevice StepRunner::on_device() const {
  OnDevice on{.tensors = std::vector<bool>(given_.size()), .queue = nullptr};
  if (maker_.work() == nullptr) return on;
  on.queue = maker_.work()->queue();
  for (const auto& stream : streams_)
    for (const size_t tensor : stream->tensors()) on.tensors[tensor] = stream->on_device();
  return on;
}

// Ranks are counted among the faulty ones that the rule tolerates where each rank combines all by
// itself in every step, and none needs more of another than its values. Memories that follow the
// result must see every result.
bool StepRunner::may_leave_out(const Sections& sections) const {
  const auto goes_on = [](const Section& section) {
    if (!section.terms.everybody) return false;
    for (const std::string& spec : CodecSchedule::parse(section.options.codec).value().ends())
      if (make_codec(spec).value().codec->info().agreed == Agreed::kScale) return false;
    return !make_feedback(section.terms.feedback, StreamSpec{}).value()->shares_state();
  };
  return options_.inside == 1 && options_.columns == 1 && combine_.rule->wants_rows() &&
         combine_.rule->tolerates(context_.ranks()) > 0 &&
         std::all_of(sections.used.begin(), sections.used.end(), goes_on);
}

// Before methods are made. In a weighted exchange, and where ranks tell what they owe, every rank
// waits for all.
void StepRunner::choose_faulty_mode() {
  const bool possible = may_leave_out_ && !options_.weighted && !options_.debts;
  if (possible && faulty_ == nullptr) faulty_ = std::make_unique<FaultyRanks>(context_, combine_);
  roster_ = possible ? &faulty_->roster() : nullptr;
}

// Opens every stream with the codec of its section, and gives each section its buckets and tags.
void StepRunner::arrange(const Sections& sections, Plan plan) {
  may_leave_out_ = may_leave_out(sections);
  choose_faulty_mode();
  plan_ = std::move(plan);
  for (size_t i = 0; i < plan_.streams.size(); ++i) {
    const PlannedStream& planned = plan_.streams[i];
    const Section& section = sections.used[planned.section];
    const SectionRunner::StreamTerms made_of = SectionRunner::terms_of(section, planned, store_);
    streams_.push_back(maker_.make(planned, streams_.size(), section, made_of));
    streams_.back()->set_regime(made_of.regime);
    specs_.push_back(planned.spec);
  }
  std::vector<std::vector<Bucket>> buckets(sections.used.size());
  for (const Bucket& bucket : plan_.buckets) {
    const size_t section = plan_.streams[bucket.front().stream].section;
    places_.push_back({.section = section, .bucket = buckets[section].size()});
    buckets[section].push_back(bucket);
  }
  int tag = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const int first_tag = tag;
    tag += kTagsPerBucket * static_cast<int>(buckets[i].size());
    sections_.push_back(std::make_unique<SectionRunner>(
        sections.used[i], std::move(buckets[i]), first_tag,
        SectionRunner::Shared{
            .context = context_, .streams = streams_, .store = store_, .roster = roster_}));
  }
}

void StepRunner::change(const Sections& sections) {
  Plan plan = plan_of(sections, given_, options_);
  for (const PlannedStream& next : plan.streams)
    for (const auto& stream : streams_)
      if (!next.plain && stream->spec().name == next.spec.name && stream->tensors() == next.tensors)
        stream->change_codec(
            SectionRunner::terms_of(sections.used[next.section], next, store_).terms);
  std::set<std::string> gone;  // keys of what will be no more
  for (const auto& section : sections_) gone.insert(section->threshold_key());
  for (const auto& stream : streams_) {
    gone.insert(regime_key(stream->spec().name));
    gone.insert(remembered_key(stream->spec().name));
  }
  sections_.clear();
  streams_.clear();
  specs_.clear();
  places_.clear();
  arrange(sections, std::move(plan));
  for (const auto& section : sections_) gone.erase(section->threshold_key());
  for (const auto& stream : streams_) {
    if (stream->has_regime()) gone.erase(regime_key(stream->spec().name));
    gone.erase(remembered_key(stream->spec().name));
  }
  for (const std::string& key : gone) store_.drop(key);
}

std::vector<bool> StepRunner::owners_owe() {
  std::vector<bool> owe;
  for (const auto& section : sections_) owe.push_back(section->owners_owe());
  return owe;
}

void StepRunner::compare_shared(Group& group) {
  std::vector<SharedSum> sums;
  for (const auto& stream : streams_) stream->add_shared_sums(sums);
  require_shared_alike(group, sums, static_cast<size_t>(context_.first),
                       static_cast<size_t>(context_.stride));
}

std::vector<OwnedRange> StepRunner::owned(size_t rank) const {
  std::vector<Piece> pieces;
  for (const auto& section : sections_)
    for (const Piece& piece : section->method().owned(rank)) pieces.push_back(piece);
  return owned_ranges(pieces, streams_);
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
  THINWIRE_CHECK(
      weighted || abstains_ != Abstention::kSitsOut,
      "exchange: set_weighted(false) where this rank is to sit out the next step, of which "
      "the others would not know");
  options_.weighted = weighted;
  weight_ = 1;
  if (!may_leave_out_) return;
  choose_faulty_mode();
  for (const auto& section : sections_) section->remake_method(context_.call.step + 1);
}

// Rules that are given rows count every rank alike.
void StepRunner::take_attendance() {
  const size_t count = context_.attendance.count();
  context_.call.participants = count;
  context_.factor = combine_.rule->wants_rows() ? 1.0f : context_.attendance.factor();
  enough_ranks_ = count > 0 && lack_of_ranks(combine_, count).empty();
  if (round_ != nullptr && enough_ranks_ && !leaves_out()) round_->begin();
}

void StepRunner::begin(uint64_t step) {
  has_verdict_ = false;
  for (const auto& section : sections_)
    section->follow_schedule(step);  // set_step may have led elsewhere
  context_.call.step = step;
  context_.faults.clear();
  context_.gives_zeros = abstains_ == Abstention::kSkipsStep;
  if (context_.gives_zeros) context_.faults.ask_to_skip(context_.group.rank());
  context_.left_out = context_.some_left_out = false;
  if (leaves_out()) faulty_->begin(context_.gives_zeros);
  context_.compress_seconds = 0;
  context_.decompress_seconds = 0;
  maker_.begin(channel_->deadline());
  sent_before_ = channel_->bytes_sent();
  received_before_ = channel_->bytes_received();
  first_send_ = last_receive_ = Clock::now();
  const double weight = abstains_ == Abstention::kSitsOut ? 0 : weight_;
  if (options_.debts)
    context_.attendance.begin(step, weight, store_.owed_norm());
  else if (options_.weighted)
    context_.attendance.begin(step, weight);
  else
    context_.attendance.begin();
  abstains_.reset();
  begun_ = 0;
  if (may_begin()) take_attendance();
}

void StepRunner::begin_bucket(size_t bucket) {
  begun_ = bucket + 1;
  if (!takes_place()) return;
  const Place& place = places_[bucket];
  sections_[place.section]->method().begin(place.bucket);
  if (bucket == 0) first_send_ = Clock::now();  // sends are the last thing that begin does
  last_receive_ = Clock::now();
}

bool StepRunner::advance() {
  if (!may_begin()) {
    const bool came = context_.attendance.advance();
    if (may_begin()) take_attendance();
    return came;
  }
  bool moved = false;
  for (const auto& section : sections_) moved |= section->method().advance();
  if (round_ != nullptr && takes_place() && !leaves_out()) moved |= choose();
  if (moved) last_receive_ = Clock::now();
  return moved;
}

// One choice for all sections: when all have all rows, their statistics go round; then all are told
// the weights.
bool StepRunner::choose() {
  if (!round_->under_way()) {
    if (begun_ < places_.size()) return false;
    for (const auto& section : sections_)
      if (!section->method().has_rows()) return false;
    for (const auto& section : sections_) section->method().add_statistics(*round_);
    round_->send();
  }
  const bool knew = round_->known();
  const bool moved = round_->advance();
  if (!knew && round_->known())
    for (const auto& section : sections_) section->method().choose(round_->row_weights());
  return moved;
}

bool StepRunner::idle() const noexcept {
  const bool ends_with_round =
      round_ != nullptr && takes_place() && begun_ == places_.size() && !leaves_out();
  return may_begin() && (!ends_with_round || round_->done()) &&
         std::all_of(sections_.begin(), sections_.end(),
                     [](const auto& section) { return section->method().done(); });
}

// Returns the method to name in a timeout. A method that waits for a rank directly knows better
// which rank is lost than one that waits for an owner. None while statistics are on their way.
const Method* StepRunner::waiting() const noexcept {
  const bool has_round = round_ != nullptr && takes_place() && !leaves_out();
  const bool collects = has_round && !round_->under_way();
  if (has_round && !collects && !round_->known()) return nullptr;
  const Method* first = nullptr;
  for (const auto& section : sections_) {
    const Method& method = section->method();
    if (method.done() || (collects && method.has_rows())) continue;
    if (!method.awaits_owner()) return &method;
    if (first == nullptr) first = &method;
  }
  return first;
}

std::string StepRunner::awaited() const {
  const Method* const method = waiting();
  const Transfer* const transfer = !may_begin()        ? context_.attendance.awaited()
                                   : method != nullptr ? method->awaited()
                                   : round_ != nullptr ? round_->awaited()
                                                       : nullptr;
  return transfer != nullptr ? transfer->describe() : "nothing";
}

bool StepRunner::awaits_owner() const noexcept {
  const Method* const method = waiting();
  return method != nullptr ? method->awaits_owner()
                           : round_ != nullptr && round_->under_way() && !round_->done();
}

bool StepRunner::stop_waiting() noexcept {
  if (!leaves_out() || !faulty_->roster().waits()) return false;
  faulty_->roster().stop_waiting();
  return true;
}

StepReport StepRunner::end() {
  if (!leaves_out()) return conclude(worst_of_all(*channel_, context_.faults.word()));
  const Verdict verdict = combine_without_faulty();
  word_ = pack(verdict);
  std::string at_fault;
  if (verdict.code == ErrorCode::kTimeout)
    at_fault = faulty_->text();
  else if (verdict.code != ErrorCode::kOk)
    at_fault = specs_[std::min(verdict.stream, specs_.size() - 1)].name;
  return conclude(verdict, at_fault);
}

StepReport StepRunner::conclude(uint64_t word) {
  if (leaves_out())
    throw Error(
        ErrorCode::kUnsupported,
        "exchange: a step counted on other ranks and failed here; combine = " + combine_.canonical +
            " left ranks out there, and this rank does not know which");
  const Verdict verdict = read_verdict(word, channel_->size(), streams_.size(), "exchange");
  word_ = word;
  return conclude(verdict, verdict.code == ErrorCode::kOk ? "" : specs_[verdict.stream].name);
}

// Whatever faults this rank alone saw, all ranks combine the same rows here.
Verdict StepRunner::combine_without_faulty() {
  if (!faulty_->agree()) return faulty_->verdict();
  context_.faults.clear();
  const std::vector<bool> counted = faulty_->counted();
  for (const auto& section : sections_) section->method().combine_only(counted, faulty_->rule());
  std::span<const float> row_weights;
  if (const VectorRule* const rule = faulty_->rule().over_vectors()) {
    round_->begin(*rule, static_cast<size_t>(std::count(counted.begin(), counted.end(), true)));
    for (const auto& section : sections_) section->method().add_statistics(*round_);
    round_->send();  // nothing: no rank owns values
    round_->advance();
    row_weights = round_->row_weights();
  }
  for (const auto& section : sections_) section->method().choose(row_weights);
  return unpack_verdict(context_.faults.word());
}

// Whatever is on its way is abandoned with the methods that wait for it.
void StepRunner::settle(bool counts) {
  if (!counts) word_ = pack({.rank = context_.group.rank(), .asked = true});
  end_parts(!counts);
  tensors_.close(!counts);
  if (has_verdict_) follow_schedules();  // a step that failed is repeated under its number
}

void StepRunner::end_parts(bool skipped) {
  for (const auto& section : sections_) section->end(skipped);
  for (const auto& stream : streams_) stream->end(context_, skipped);
}

void StepRunner::follow_schedules() {
  for (const auto& section : sections_) section->follow_schedule(context_.call.step + 1);
}

void StepRunner::give_results() {
  for (const auto& stream : streams_) stream->give_result(context_);
}

// Rows are those of the ranks that take part and are not left out by a fault.
std::vector<int> StepRunner::unchosen() const {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < context_.ranks(); ++rank)
    if (leaves_out() ? !faulty_->decision().leaves_out(rank) : context_.takes_part(rank))
      ranks.push_back(rank);
  std::vector<int> found;
  for (const size_t row : round_->unchosen())
    found.push_back(context_.number_of(static_cast<int>(ranks[row])));
  return found;
}

StepReport StepRunner::conclude(const Verdict& verdict, const std::string& stream_at_fault) {
  has_verdict_ = true;
  StepReport report;
  report.step = context_.call.step;
  add_participants(report);
  report.skipped = verdict.code != ErrorCode::kOk || verdict.asked || !takes_place();
  report.fault = fault_of(verdict, stream_at_fault, report.participants);
  if (round_ != nullptr && !report.skipped) report.unchosen = unchosen();
  const bool held = options_.hold && !report.skipped;
  if (held)
    give_results();
  else
    end_parts(report.skipped);
  {
    const Stopwatch watch(context_.decompress_seconds);
    tensors_.close(report.skipped);
  }
  add_counters(report);
  if (!held) follow_schedules();
  return report;
}

void StepRunner::add_participants(StepReport& report) const {
  report.participants = context_.attendance.count();
  for (const auto& debt : context_.attendance.debts())
    if (options_.debts && debt && debt->step == report.step) report.owed.push_back(debt->owed);
  if (!leaves_out()) return;
  for (const Decision::Entry& entry : faulty_->decision().left_out)
    report.left_out.push_back(entry.left_out);
  report.participants -= report.left_out.size();
}

Fault StepRunner::fault_of(const Verdict& verdict, const std::string& stream_at_fault,
                           size_t participants) const {
  Fault fault;
  if (verdict.code != ErrorCode::kOk)
    fault = {.code = verdict.code, .rank = verdict.rank, .stream = stream_at_fault};
  else if (verdict.asked)
    fault.rank = verdict.rank;
  else if (!takes_place() && participants > 0)
    fault.stream = lack_of_ranks(combine_, participants) + ", and " + std::to_string(participants) +
                   " took part";
  return fault;
}

void StepRunner::add_counters(StepReport& report) {
  for (const auto& stream : streams_) {
    report.streams.push_back(stream->counters());
    report.streams.back().codec = stream->codec_text();
    report.streams.back().on_device = stream->on_device();
    report.streams.back().why_staged = stream->why_staged();
  }
  maker_.report(report);
  report.dense_bytes = dense_fp32_bytes(tensors_.total_count(), context_.ranks(), options_.results);
  report.sent_bytes = channel_->bytes_sent() - sent_before_;
  report.between_bytes = report.sent_bytes;
  report.received_bytes = channel_->bytes_received() - received_before_;
  report.compress_seconds = context_.compress_seconds;
  report.decompress_seconds = context_.decompress_seconds;
  report.wire_seconds = std::chrono::duration<double>(last_receive_ - first_send_).count();
}

}  // namespace thinwire
