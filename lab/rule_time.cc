// Times a rule over rows of a file, on one thread, beside one read of the same memory;
// compare_rules.py runs it.
//
//   rule_time ROWS RANKS RULE TIMES RESULT
//
// ROWS holds floats, one row after another. Prints a line for each of TIMES rounds: seconds of the
// rule, with its statistics, and seconds of one read of the rows. The result goes to the file
// RESULT. What the rule remembers from step to step is as before the first step.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <span>
#include <string>

#include "core/aligned.h"
#include "exchange/rules/vector_rule.h"
#include "kernel/baseline.h"
#include "thinwire/threads.h"

namespace thinwire {
namespace {

AlignedVector<float> read_floats(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw Error(ErrorCode::kIo, std::string("rule_time: cannot read ") + path);
  AlignedVector<float> values(static_cast<size_t>(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

void combine(const Combine& rule, std::span<const float> rows, size_t ranks,
             std::span<float> result) {
  std::vector<float> weights;
  if (const VectorRule* const of_vectors = rule.over_vectors()) {
    std::vector<double> statistics(of_vectors->statistics(ranks));
    of_vectors->add_statistics(rows, ranks, statistics);
    weights.resize(of_vectors->weights(ranks));
    of_vectors->weigh(statistics, {.ranks = ranks}, weights);
  }
  rule.combine(rows, ranks, weights, result);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(char** arguments) {
  set_codec_threads(1);
  AlignedVector<float> rows = read_floats(arguments[1]);
  const size_t given = rows.size();
  const auto ranks = static_cast<size_t>(std::atoi(arguments[2]));
  const auto rule = make_combine(arguments[3]).value().rule;
  AlignedVector<float> result(given / ranks);
  if (const VectorRule* const of_vectors = rule->over_vectors())
    rows.insert(rows.end(), of_vectors->remembered_rows() * result.size(),
                of_vectors->first_remembered());
  for (int i = 0; i < std::atoi(arguments[4]); ++i) {
    auto begin = std::chrono::steady_clock::now();
    combine(*rule, rows, ranks, result);
    const double of_rule = seconds_since(begin);
    begin = std::chrono::steady_clock::now();
    const double sum = kernel::baseline_scan(std::span<const float>(rows).first(given));
    std::printf("%.6f %.6f\n", of_rule, seconds_since(begin) + (sum < 0 ? 1 : 0));
  }
  std::ofstream(arguments[5], std::ios::binary)
      .write(reinterpret_cast<const char*>(result.data()),
             static_cast<std::streamsize>(result.size() * sizeof(float)));
}

}  // namespace
}  // namespace thinwire

int main(int count, char** arguments) {
  if (count != 6) {
    std::fprintf(stderr, "usage: rule_time ROWS RANKS RULE TIMES RESULT\n");
    return 2;
  }
  try {
    thinwire::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
