// SyncRule: counts steps, ends rounds together, and gives the mean if a rule has no centre.
// SPDX-License-Identifier: Apache-2.0
#include "sync/sync_rule.h"

#include <algorithm>

#include "core/check.h"
#include "exchange/layout/plan.h"
#include "sync/member_group.h"

namespace thinwire {
namespace {

std::string describe(const RoundReport& report) {
  const Fault& fault = report.fault;
  if (fault.code == ErrorCode::kPeerLost || fault.code == ErrorCode::kTimeout)
    return fault.stream + " in round " + std::to_string(report.round);
  std::string text = "'" + fault.stream + "'";
  if (fault.rank >= 0) text += " of rank " + std::to_string(fault.rank);
  text += fault.code == ErrorCode::kCorrupt ? " arrived corrupt" : " is not finite";
  return text + " in round " + std::to_string(report.round);
}

// A store may have the memory of a synchroniser that was made over it before.
SyncMemory& open_sync_memory(Store& store, const std::string& name,
                             std::vector<SyncMemory::Vector> vectors,
                             std::vector<SyncMemory::Numbers> numbers) {
  auto made = std::make_unique<SyncMemory>(std::move(vectors), std::move(numbers));
  SyncMemory& memory = store.open<SyncMemory>("sync/" + name, [&] { return std::move(made); });
  if (made != nullptr && !memory.is_shaped_as(*made))
    throw Error(ErrorCode::kMismatch, "synchroniser '" + name +
                                          "': the store has the memory of one with other tensors, "
                                          "options or codec; give this one "
                                          "a store of its own");
  return memory;
}

}  // namespace

SyncRule::SyncRule(const SyncSetup& setup, const std::string& name,
                   std::vector<SyncMemory::Vector> vectors,
                   std::vector<SyncMemory::Numbers> numbers)
    : store_(setup.store),
      tensors_(setup.tensors),
      options_(setup.options),
      name_(name),
      count_(total_count(setup.tensors)),
      memory_(open_sync_memory(setup.store, name, std::move(vectors), std::move(numbers))) {
  THINWIRE_CHECK(setup.start.size() == count_,
                 "synchroniser: " + std::to_string(setup.start.size()) +
                     " start values for tensors of " + std::to_string(count_));
}

std::string SyncRule::agreement() const {
  std::string text = "resumed " + std::string(memory_.loaded() ? "yes" : "no") + "\n";
  if (counts_alike())
    text += "steps " + std::to_string(memory_.steps) + "\nrounds " +
            std::to_string(memory_.rounds) + "\n";
  return text + "shared memory " + shared_memory() + "\n";
}

void SyncRule::connect(Group& group) {
  channel_ = group.split(0);
  join();
}

template <typename Body>
auto SyncRule::guarded(const Body& body) -> decltype(body()) {
  if (over_) std::rethrow_exception(over_);
  try {
    return body();
  } catch (const AgreedError&) {  // the others throw it too
    over_ = std::current_exception();
    throw;
  } catch (const std::exception& error) {
    over_ = std::current_exception();
    if (!is_survived()) channel_->abort(error.what());
    throw;
  }
}

std::optional<RoundReport> SyncRule::after_step(std::span<float> parameters, double loss) {
  THINWIRE_CHECK(parameters.size() == count_, "synchroniser: " + std::to_string(parameters.size()) +
                                                  " parameters for tensors of " +
                                                  std::to_string(count_));
  return guarded([&] {
    ++memory_.steps;
    return step(parameters, loss);
  });
}

void SyncRule::centre(std::span<const float> parameters, std::span<float> out) {
  THINWIRE_CHECK(parameters.size() == count_ && out.size() == count_,
                 "synchroniser: centre of " + std::to_string(parameters.size()) + " into " +
                     std::to_string(out.size()) + " values, the tensors have " +
                     std::to_string(count_));
  guarded([&] {
    if (own_centre(out)) return;
    if (const auto ranks = remaining(); !ranks.empty()) return mean_of(ranks, parameters, out);
    if (!plain_mean_)
      plain_mean_ = std::make_unique<ReplicaMean>(*channel_, plain_store_, tensors_);
    const StepReport report = plain_mean_->form(parameters, {});
    if (report.skipped)
      throw AgreedError(
          report.fault.code,
          "synchroniser: the mean of all workers cannot be formed: " + describe(report.fault));
    const std::span<const float> mean = plain_mean_->mean();
    std::copy(mean.begin(), mean.end(), out.begin());
  });
}

// Without those that are lost, whom an exchange would wait for: one rank after the other shows its
// parameters to all, which add them in this order.
void SyncRule::mean_of(const std::vector<int>& ranks, std::span<const float> parameters,
                       std::span<float> out) {
  MemberGroup there(*channel_, ranks, 0);
  std::vector<double> sum(parameters.size());
  for (int rank = 0; rank < there.size(); ++rank) {
    if (rank == there.rank()) std::copy(parameters.begin(), parameters.end(), out.begin());
    there.broadcast(std::as_writable_bytes(out), rank);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += double{out[i]};
  }
  for (size_t i = 0; i < sum.size(); ++i) out[i] = static_cast<float>(sum[i] / there.size());
}

void SyncRule::end_round(const RoundReport& report) {
  ++memory_.rounds;
  skipped_ = report.skipped ? skipped_ + 1 : 0;
  if (options_.max_skipped <= 0 || skipped_ < options_.max_skipped) return;
  const std::string why = "synchroniser '" + name_ + "': " + std::to_string(skipped_) +
                          " rounds in a row were skipped; the last: " + describe(report);
  // Of a round in one group the others know nothing, of a lost worker those that did not need it.
  const bool lost =
      report.fault.code == ErrorCode::kPeerLost || report.fault.code == ErrorCode::kTimeout;
  if (report.global && !lost) throw AgreedError(report.fault.code, why);
  throw Error(report.fault.code, why);
}

}  // namespace thinwire
