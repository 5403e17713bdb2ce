// PipelineOptions: the section `pipeline` of a recipe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/stage_schedule.h"
#include "thinwire/boundary.h"
#include "thinwire/options.h"
#include "thinwire/trainer.h"

namespace thinwire {

// Stages that train on auxiliary variables of samples instead of waiting for each other.
struct Decoupling {
  double penalty = 1;         // beta, as AuxiliaryVariables has it
  double rate = 1;            // rho
  uint64_t serial_every = 0;  // epochs; 0: the first one alone is serial

  // The last serial epoch up to this one.
  uint64_t serial_epoch(uint64_t epoch) const noexcept {
    return serial_every == 0 ? 0 : epoch - epoch % serial_every;
  }
};

struct PipelineOptions {
  size_t stages = 0;                               // 0: no pipeline
  std::string cut;                                 // "parameters", "time" or names
  PipelineOrder order = PipelineOrder::kOneFOneB;  // of passes in which stages wait for each other
  std::optional<Decoupling> decoupling;            // absent: they do in all steps
  // One for all boundaries, or one for each.
  std::vector<std::string> forward, forward_memory, backward, backward_memory;
  std::vector<std::string> autoencoder = {"none"};  // likewise, as code_width reads it
  size_t boundaries = 0;  // that are compressed, counted from the back; 0: all, as the lists say
  std::string streams;
  bool shared_positions = false;
  double warmup = 0;          // epochs; or else
  uint64_t warmup_steps = 0;  // steps
  size_t cache_budget = 0;    // bytes
  std::string spill_folder;
  bool save_caches = true;
};

PipelineOptions pipeline_options(const Options& recipe);

// The part of such a list that is for cut number `cut`.
const std::string& of_cut(const std::vector<std::string>& list, size_t cut);

// What crosses cut number `cut`, in one direction: all of its spec but the shape, the number of
// samples and who sends.
BoundarySpec boundary_options(const PipelineOptions& options, size_t cut, bool backward);

// What is wrong with the section, alone and with the rest of the recipe; at most one fault of each
// key.
std::vector<RecipeFault> find_pipeline_faults(const Options& recipe);

}  // namespace thinwire
