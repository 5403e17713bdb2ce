// Runs every case on threads and condenses what came out.
// SPDX-License-Identifier: Apache-2.0
#include "recorded/sync_results.h"

#include <cstdint>

#include "recorded/checksum_of.h"
#include "sync/testing/sync_testing.h"

namespace thinwire::testing {
namespace {

constexpr int kSteps = 12;
constexpr int kMaxRanks = 5;

struct Outcome {
  uint64_t parameters = 0;
  uint64_t state = 0;
  uint64_t sent = 0;
};

// Some parameters are negative zeros wherever workers talk: that sign travels too.
Outcome run_worker(Group& group, const SynchroniserOptions& options) {
  Worker worker(group, options);
  worker.reported = [&](double loss) {
    for (size_t i = 3; i < worker.x.size(); i += 10) worker.x[i] = -0.0f;
    return loss;
  };
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    const auto report = worker.step();
    mix(outcome.parameters, std::as_bytes(std::span(worker.x)));
    if (report) outcome.sent += report->sent_bytes;
  }
  outcome.state = checksum_of(worker.store().save());
  return outcome;
}

std::string result_of(const SynchroniserOptions& options, int ranks) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  run_local(ranks, [&](Group& group) {
    outcomes[static_cast<size_t>(group.rank())] = run_worker(group, options);
  });
  Outcome all;
  for (const Outcome& rank : outcomes) {
    mix(all.parameters, std::as_bytes(std::span(&rank.parameters, 1)));
    mix(all.state, std::as_bytes(std::span(&rank.state, 1)));
    all.sent += rank.sent;
  }
  return "parameters " + hex(all.parameters) + ", state " + hex(all.state) + ", sent " +
         std::to_string(all.sent);
}

std::vector<SynchroniserOptions> cases() {
  std::vector<SynchroniserOptions> all;
  const auto add = [&](const std::string& method, const std::vector<std::string>& codecs) {
    for (const std::string& codec : codecs) all.push_back({.method = method, .codec = codec});
  };
  const std::vector<std::string> some = {"fp32", "int8", "topk:density=0.1"};
  for (const char* method : {"average:tau=2", "diloco:tau=2", "downpour:tau=2", "easgd:tau=2",
                             "easgd:tau=2,centre=variable", "parle:tau=2",
                             "streaming:tau=4,fragments=2,delay=1,mix=0.5"})
    add(method, some);
  for (const char* graph : {"one-peer", "random"})
    add(std::string("gossip:tau=2,graph=") + graph, {"fp32"});
  add("leader:tau=2,tau_global=4,groups=2",
      {"fp32", "fp16", "int8", "sign", "topk:density=0.1", "sidco:density=0.1",
       "redsync:density=0.1", "powersgd:rank=2", "acsgd", "terngrad"});
  add("leader:tau=2,tau_global=2", {"fp32", "int8"});
  add("leader:tau=2,tau_global=4,groups=2,prox=0.1,prox_global=0.2,pull=1", {"fp32", "int8"});
  return all;
}

}  // namespace

std::vector<std::string> sync_results() {
  std::vector<std::string> lines;
  for (const SynchroniserOptions& options : cases())
    for (int ranks = 1; ranks <= kMaxRanks; ++ranks)
      if (ranks > 1 || options.method.find("groups") == std::string::npos)
        lines.push_back(options.method + " with " + options.codec + ", " + std::to_string(ranks) +
                        " ranks: " + result_of(options, ranks));
  return lines;
}

}  // namespace thinwire::testing
