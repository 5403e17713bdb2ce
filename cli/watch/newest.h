// What the newest lines of a run say of its codecs, rounds, ranks and stages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thinwire::cli {

// Texts are printable, whatever the lines hold.
struct Newest {
  // The codecs of tensors, from a step on.
  struct Codecs {
    std::vector<std::pair<std::string, size_t>> tensors;  // how many; the most first
    uint64_t step = 0;
    std::string why;     // codec auto's reason
    uint64_t times = 0;  // that the file speaks of codecs: 1 where they never changed
  };
  struct Round {
    int64_t number = 0;
    uint64_t step = 0;
    bool global = true;
    std::optional<int64_t> leader;
    size_t ranks = 0;  // that took part, where the method says it
    double seconds = 0;
    double sent_bytes = 0;
    std::string skipped;  // why; else empty
  };
  struct Absence {
    uint64_t steps = 0;
    std::string why;  // the last time
  };
  struct Boundary {
    std::string behind;
    double forward = 0, backward = 0;  // codec ratios; 0: nothing crossed
  };

  Codecs codecs;
  std::optional<Round> round;
  uint64_t skipped_rounds = 0;
  std::map<int64_t, Absence> left_out;  // by rank
  uint64_t lost = 0, joined = 0;        // workers
  std::optional<double> idle_share;     // of pipelines
  std::vector<Boundary> boundaries;

  // The line of this step.
  void add(uint64_t step, const nlohmann::json& line);

 private:
  void add_codecs(uint64_t step, const nlohmann::json& line);
  void add_round(uint64_t step, const nlohmann::json& line);
  void add_left_out(const nlohmann::json& line);
  void add_pipeline(const nlohmann::json& line);
};

// Means over the last steps of one rank, as it wrote them to ranks/RANK.json.
struct RankFigures {
  int64_t rank = 0;
  uint64_t step = 0;
  double loss = 0;
  double fetch = 0, compute = 0, update = 0, wait = 0;  // seconds of a step
  double silent_seconds = 0;                            // since they were written
};

// Of all ranks of the run in `folder`, in their order; empty where there is one only.
std::vector<RankFigures> rank_figures(const std::filesystem::path& folder);

}  // namespace thinwire::cli
