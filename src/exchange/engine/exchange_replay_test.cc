// Tests of messages of one step that replace each other: every rank notices, or nothing changes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <string>
#include <vector>

#include "exchange/step/message_tags.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"

namespace thinwire::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kLastTag =
    30000;                     // of the exchange's own messages; the agreement on a step is beyond
constexpr size_t kLength = 8;  // a message that says how long the next one is

using Message = std::vector<std::byte>;

// Somebody on the network who has seen all messages of a step, and swaps one of those to `victim`.
class Adversary {
 public:
  // Replaces message number `target` to rank `victim` in the step by another one of its length: the
  // one that `choice` picks among those that differ from it.
  Adversary(int victim, size_t target, size_t choice)
      : victim_(victim), target_(target), choice_(choice) {}

  void see(int rank, int tag, std::span<std::byte> message) {
    if (message.size() <= kLength || tag >= kLastTag) return;
    const std::lock_guard lock(mutex_);
    const Message now(message.begin(), message.end());
    if (rank == victim_ && seen_by_victim_++ == target_) {
      std::vector<const Message*> others;
      for (const Message& other : seen_)
        if (other.size() == now.size() && other != now) others.push_back(&other);
      if (!others.empty()) {
        std::copy(others[choice_ % others.size()]->begin(), others[choice_ % others.size()]->end(),
                  message.begin());
        replaced_ = true;
      }
    }
    seen_.push_back(now);
  }

  bool replaced() const noexcept { return replaced_; }
  bool ran_out() const noexcept { return seen_by_victim_ <= target_; }

 private:
  const int victim_;
  const size_t target_, choice_;
  std::mutex mutex_;
  std::vector<Message> seen_;
  size_t seen_by_victim_ = 0;
  bool replaced_ = false;
};

std::string name_of(const ExchangeOptions& options) {
  std::string name = options.codec + "_" + options.method;
  if (options.combine != "mean") name += "_" + options.combine;
  const auto is_other = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; };
  std::replace_if(name.begin(), name.end(), is_other, '_');
  return name;
}

class ExchangeReplay : public ::testing::TestWithParam<ExchangeOptions> {};

TEST_P(ExchangeReplay, AnotherMessageOfTheStepIsNotTakenForTheOneExpected) {
  ExchangeOptions options = GetParam();
  options.chunk_values = 200;
  size_t replacements = 0;
  // What an adversary has seen before its target depends on the order in which messages come. In
  // several rounds it finds another message of the same length, but in gather, whose payloads may
  // all differ in length.
  const int rounds = options.method == "gather" ? 1 : 20;
  for (int round = 0; round < rounds && replacements == 0; ++round)
    for (int victim = 0; victim < kRanks; ++victim) {
      bool ran_out = false;
      for (size_t target = 0; !ran_out; ++target) {
        Adversary adversary(victim, target, 7 * target + static_cast<size_t>(victim));
        std::vector<Tensors> means(kRanks);
        std::vector<int> refused(kRanks);
        run_local(kRanks, [&](Group& group) {
          TamperingGroup tampering(group, [&](int, int tag, std::span<std::byte> message) {
            if (tag != kAccountsTag) adversary.see(group.rank(), tag, message);
          });
          Side side(tampering, small_model(), options);
          const auto rank = static_cast<size_t>(group.rank());
          const StepReport report = side.step(0);
          refused[rank] = report.skipped || !report.left_out.empty();
          means[rank] = side.values;
        });
        const std::string where = options.codec + " by " + options.method + ", message " +
                                  std::to_string(target) + " to rank " + std::to_string(victim);
        for (size_t rank = 0; rank < kRanks; ++rank) {
          EXPECT_EQ(refused[rank] != 0, adversary.replaced()) << where << ", on rank " << rank;
          EXPECT_TRUE(same_bits(means[rank], means[0])) << where << ", on rank " << rank;
        }
        replacements += adversary.replaced();
        ran_out = adversary.ran_out();
      }
    }
  EXPECT_TRUE(replacements > 0 || options.method == "gather") << options.codec;
}

INSTANTIATE_TEST_SUITE_P(Pairs, ExchangeReplay, ::testing::ValuesIn(codecs_and_methods()),
                         [](const auto& test) { return name_of(test.param); });

// Their statistics are messages too.
std::vector<ExchangeOptions> rules_over_vectors() {
  std::vector<ExchangeOptions> all;
  for (const char* method : {"scatter-reduce", "gather"})
    for (const char* codec : {"fp32", "int8"})
      all.push_back({.codec = codec, .method = method, .combine = "cge:f=1"});
  all.push_back({.codec = "fp16", .method = "scatter-reduce", .combine = "krum:f=0,m=2"});
  all.push_back(
      {.codec = "fp32", .method = "scatter-reduce", .combine = "centred_clipping:tau=0.1"});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Rules, ExchangeReplay, ::testing::ValuesIn(rules_over_vectors()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace thinwire::testing
