// Adds up a rank's times, and writes their means.
// SPDX-License-Identifier: Apache-2.0
#include "train/rank_figures.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "train/saved_names.h"

namespace thinwire {
namespace {

namespace fs = std::filesystem;

// So that a file system that all share has some sixteen files a second to rename at most.
double pause_of(int ranks) { return std::max(1.0, ranks / 16.0); }

}  // namespace

RankFigures::RankFigures(const fs::path& out) : folder_(out / kRanksFolder) {}

void RankFigures::add(int rank, int ranks, uint64_t step, double seconds,
                      const StepOutcome& outcome) {
  ++steps_;
  loss_ += outcome.loss;
  fetch_ += outcome.times.fetch;
  compute_ += outcome.times.compute;
  update_ += outcome.times.update;
  wait_ += outcome.report.wait_seconds;
  if (rank == 0 && ranks < ranks_) remove_from(ranks);
  ranks_ = ranks;
  if (seconds < next_) return;
  write(rank, step);
  next_ = seconds + pause_of(ranks);
  steps_ = 0;
  loss_ = fetch_ = compute_ = update_ = wait_ = 0;
}

void RankFigures::remove_from(int rank) const {
  std::error_code error;
  for (; rank < ranks_; ++rank) fs::remove(path_of(rank), error);
}

fs::path RankFigures::path_of(int rank) const { return folder_ / (std::to_string(rank) + ".json"); }

void RankFigures::write(int rank, uint64_t step) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  const auto mean = [&](double sum) { return sum / static_cast<double>(steps_); };
  const nlohmann::ordered_json json = {{"rank", rank},
                                       {"step", step},
                                       {"loss", mean(loss_)},
                                       {"times",
                                        {{"fetch", mean(fetch_)},
                                         {"compute", mean(compute_)},
                                         {"update", mean(update_)},
                                         {"wait", mean(wait_)}}}};
  const fs::path path = path_of(rank);
  const fs::path unfinished = path.string() + ".tmp";
  std::ofstream file(unfinished);
  if (file << json.dump() << std::endl) fs::rename(unfinished, path, error);
}

}  // namespace thinwire
