// The ranks of a run: threads of this process, or mpirun's processes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "thinwire/group.h"
#include "thinwire/status.h"
#include "thinwire/trainer.h"

namespace thinwire::cli {

// Runs recipes on all ranks, one after the other.
class Workers {
 public:
  // `wanted` threads, or else as many as the recipe says; under mpirun its ranks, and `wanted`, if
  // given, must be as many.
  static Result<Workers> find(std::optional<int> wanted, const Recipe& recipe);

  int size() const { return size_; }
  bool under_mpirun() const { return group_ != nullptr; }
  int rank() const {
    return rank_;
  }  // of this process; 0 for threads. After a run whose workers come and go: in its last group
  std::string describe() const;  // "4 workers (threads)"

  // Trains; `events` are those of rank 0. Throws Error as train_recipe does; when only some ranks
  // failed, the message starts with the first one's number. Under mpirun the other ranks have been
  // told.
  RunSummary train(const Recipe& recipe, const RunPlaces& places, const RunEvents& events);

 private:
  RunSummary train_threads(const Recipe& recipe, const RunPlaces& places, const RunEvents& events);
  RunSummary train_elastic(const Recipe& recipe, const RunPlaces& places, const RunEvents& events);

  int size_ = 1;
  int rank_ = 0;
  std::unique_ptr<Group> group_;  // mpirun's world; null for threads
};

}  // namespace thinwire::cli
