// Starts the ranks of a run and collects their results.
// SPDX-License-Identifier: Apache-2.0
#include "cli/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "cli/elastic_threads.h"
#include "cli/mpirun.h"
#include "cli/text.h"
#include "thinwire/members.h"
#include "thinwire/survived.h"

namespace thinwire::cli {

Result<Workers> Workers::find(std::optional<int> wanted, const Recipe& recipe) {
  Workers workers;
  const auto world = mpirun_world();
  if (world && recipe.options.integer("run.replacements") > 0)
    return Status::fail(ErrorCode::kBadOption,
                        "run.replacements: is for workers that are threads; under mpirun nobody "
                        "can join, so leave it out");
  if (!world) {
    workers.size_ = wanted.value_or(static_cast<int>(recipe.options.integer("run.workers")));
    return workers;
  }
  if (wanted && *wanted != world->size)
    return Status::fail(ErrorCode::kBadOption,
                        fmt::format("--workers {}, but mpirun started {} ranks; leave --workers "
                                    "out, or say mpirun -n {}",
                                    *wanted, world->size, *wanted));
  auto group = make_mpi_group();
  if (!group) return group.status();
  workers.group_ = std::move(group).value();
  workers.size_ = workers.group_->size();
  workers.rank_ = workers.group_->rank();
  return workers;
}

std::string Workers::describe() const {
  if (group_ != nullptr) return fmt::format("{} workers (mpirun)", size_);
  return size_ == 1 ? "1 worker" : fmt::format("{} workers (threads)", size_);
}

RunSummary Workers::train(const Recipe& recipe, const RunPlaces& places, const RunEvents& events) {
  if (recipe.options.flag("run.elastic"))
    return group_ == nullptr ? train_elastic_threads(size_, recipe, places, events)
                             : train_elastic(recipe, places, events);
  if (group_ == nullptr) return train_threads(recipe, places, events);
  try {
    return train_recipe(recipe, places, *group_, rank_ == 0 ? events : RunEvents{});
  } catch (const SurvivedError&) {
    throw;
  } catch (const std::exception& error) {
    group_->abort(first_line(error.what()));
    throw;
  }
}

// Under mpirun. Rank 0 of the last group speaks for all.
RunSummary Workers::train_elastic(const Recipe& recipe, const RunPlaces& places,
                                  const RunEvents& events) {
  const std::unique_ptr<Members> members = make_mpi_members().value();
  RunSummary summary = train_recipe(recipe, places, *members, events);
  rank_ = members->rank();
  return summary;
}

RunSummary Workers::train_threads(const Recipe& recipe, const RunPlaces& places,
                                  const RunEvents& events) {
  RunSummary summary;
  std::mutex mutex;
  std::vector<std::pair<int, std::string>> failures;  // in order of failing
  try {
    run_local(size_, [&](Group& group) {
      const int rank = group.rank();
      try {
        RunSummary mine = train_recipe(recipe, places, group, rank == 0 ? events : RunEvents{});
        if (rank == 0) summary = std::move(mine);
      } catch (const SurvivedError&) {  // rank 0 says so
        throw;
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        failures.emplace_back(rank, error.what());
        throw;
      }
    });
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const std::string what(first_line(error.what()));
    const bool agreed = dynamic_cast<const AgreedError*>(&error) != nullptr;
    const auto first = std::find_if(failures.begin(), failures.end(),
                                    [&](const auto& f) { return f.second == error.what(); });
    throw Error(
        known != nullptr ? known->code() : ErrorCode::kContract,
        agreed || first == failures.end() ? what : fmt::format("rank {}: {}", first->first, what));
  }
  return summary;
}

}  // namespace thinwire::cli
