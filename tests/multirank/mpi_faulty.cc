// A program under mpirun --enable-recovery: an exchange with a robust rule, of which the last rank
// is killed in the middle of a step; the others go on without it. Each that does says so; mpirun's
// exit code does not tell.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <vector>

#include "thinwire/exchange.h"

namespace thinwire {
namespace {

// One tensor arrives without being asked for, the other after a handshake.
const std::vector<TensorSpec> kModel{{"small", {1000}, TensorKind::kLinear},
                                     {"large", {300000}, TensorKind::kLinear}};

void run() {
  const std::unique_ptr<Group> group = make_mpi_group().value();
  group->set_deadline(std::chrono::seconds(20));
  Store store;
  const auto exchange = make_exchange(*group, store, kModel,
                                      {.codec = "fp32",
                                       .method = "gather",
                                       .combine = "trimmed_mean:f=1",
                                       .grouping = Grouping::kTensor,
                                       .bucket_bytes = 5000});
  int without = 0;
  for (int step = 0; step < 6; ++step) {
    std::vector<std::vector<float>> values;
    for (const TensorSpec& tensor : kModel)
      values.emplace_back(tensor.count(), static_cast<float>(group->rank()));
    exchange->start(1, {.data = values[1].data(), .count = values[1].size()});
    if (step == 2 && group->rank() == 3) raise(SIGKILL);
    exchange->start(0, {.data = values[0].data(), .count = values[0].size()});
    const StepReport report = exchange->finish();
    const LeftOut lost{3, LeftOutFor::kSilence};
    const bool is_out = report.left_out == std::vector<LeftOut>{lost};
    const float expected =
        is_out ? 1.0f : 1.5f;  // the mean of 0, 1 and 2, or of the middle 1 and 2
    if (report.skipped || values[0][0] != expected || values[1].back() != expected) return;
    without += is_out;
  }
  std::printf("rank %d did %d steps without rank 3\n", group->rank(), without);
  std::fflush(stdout);
}

}  // namespace
}  // namespace thinwire

int main() {
  try {
    thinwire::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  _exit(0);  // MPI cannot end well without the rank that is lost
}
