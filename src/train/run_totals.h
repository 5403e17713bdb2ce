// RunTotals: sums over the steps of a run, for summary.json and for checkpoints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "thinwire/exchange.h"
#include "thinwire/trainer.h"

namespace thinwire {

// Of all streams whose tensors are of one kind; "mixed" when a stream's tensors are of several.
struct KindTotals {
  uint64_t values = 0;
  uint64_t kept = 0;
  uint64_t payload_bytes = 0;

  double codec_ratio() const noexcept;  // 1 when nothing was sent
};

// Seconds in which a step did what, beside the exchange's.
struct StepTimes {
  double fetch = 0;
  double compute = 0;  // forward and backward
  double update = 0;   // clipping of the mean, and the optimiser
  // Of the processor, for these by the training thread: less than their sum where another thread
  // had the core. 0: unknown.
  double processor = 0;
};

using Kinds = std::map<std::string, KindTotals>;

// One step's streams by kind. REQUIRES: as many streams as counters.
Kinds sum_kinds(const std::vector<StreamSpec>& streams, const StepReport& report);

struct RunTotals {
  uint64_t steps = 0;
  uint64_t skipped = 0;
  uint64_t samples = 0;  // of asynchronous workers, of all of them together
  uint64_t values = 0;
  uint64_t kept = 0;  // of streams that have a target
  uint64_t target = 0;
  uint64_t payload_bytes = 0;
  uint64_t frame_bytes = 0;
  uint64_t dense_bytes = 0;
  uint64_t sent_bytes = 0;
  uint64_t peak_sent_bytes = 0;  // of one step
  uint64_t received_bytes = 0;
  uint64_t inside_bytes = 0;  // parts of sent_bytes, in exchanges
  uint64_t between_bytes = 0;
  double fetch_seconds = 0;
  double compute_seconds = 0;
  double compress_seconds = 0;
  double wire_seconds = 0;
  double decompress_seconds = 0;
  double wait_seconds = 0;
  double evaluate_seconds = 0;
  double seconds = 0;     // since training began, earlier parts of a resumed run included
  double best_error = 2;  // of all tests; 2 before the first
  double last_error = 1;  // of the last test
  double last_loss = 0;
  double last_hold_out_error = 2;    // 2: nothing is held out
  double last_compressed_error = 2;  // 2: not a pipeline
  double last_compressed_loss = 0;
  double last_compressed_hold_out_error = 2;
  double delivered_norm = 0;     // of the last mean that counted; 0 unless what is owed is measured
  double lost_debt_squared = 0;  // of lost workers: the squares of the norms of what they owed
  Kinds kinds;

  void add(const StepReport& report, const Kinds& kinds_now, const StepTimes& times);

  // Fills in the figures that come from here.
  void summarise(RunSummary& summary) const;

  std::string to_json() const;
  static Result<RunTotals> from_json(const std::string& text);
};

}  // namespace thinwire
