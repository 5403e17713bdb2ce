// Accordions in an exchange: each stream's codec follows the norms of its means, alike on all
// ranks.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exchange/testing/accordion_runs.h"

namespace thinwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kEta = 0.5;

// The regime by a plain loop over what was delivered: the norms of the first window, if an interval
// has two, and of the last window of every interval.
class Oracle {
 public:
  explicit Oracle(uint64_t interval) : interval_(interval) {}
  bool critical() const { return critical_; }
  void deliver(const std::vector<const Values*>& tensors) {
    const uint64_t at = steps_++ % interval_;
    const bool first = steps_ <= interval_;
    if (first && interval_ >= 2 * kStepsInEpoch && at < kStepsInEpoch) add(tensors);
    if (first && interval_ >= 2 * kStepsInEpoch && at + 1 == kStepsInEpoch)
      norms_.push_back(norm());
    if (at + kStepsInEpoch >= interval_) add(tensors);
    if (at + 1 < interval_) return;
    norms_.push_back(norm());
    if (norms_.size() < 2) return;
    const double before = norms_[norms_.size() - 2];
    critical_ = before == 0 || std::abs(before - norms_.back()) / before >= kEta;
  }

 private:
  void add(const std::vector<const Values*>& tensors) {
    Values all;
    for (const Values* tensor : tensors) all.insert(all.end(), tensor->begin(), tensor->end());
    sum_.resize(all.size());
    for (size_t i = 0; i < all.size(); ++i) sum_[i] += all[i];
  }
  double norm() {
    double square = 0;
    for (const float value : sum_) square += double{value} * value;
    sum_.clear();
    return std::sqrt(square);
  }
  const uint64_t interval_;
  uint64_t steps_ = 0;
  bool critical_ = true;
  Values sum_;
  std::vector<double> norms_;
};

// Bytes of a stream's payload, or its target: what tells regimes apart.
uint64_t size_of_step(const StreamCounters& stream) {
  return stream.target > 0 ? stream.target : stream.payload_bytes;
}

std::vector<const Values*> tensors_of(const StreamSpec& stream,
                                      const std::vector<TensorSpec>& model, const Tensors& values) {
  std::vector<const Values*> found;
  for (const TensorSpec& tensor : stream.tensors)
    for (size_t t = 0; t < model.size(); ++t)
      if (model[t].name == tensor.name) found.push_back(&values[t]);
  return found;
}

// What each stream sends tells its regime, which is the one that a plain loop over the means of
// this rank finds; so ranks agree.
TEST(ExchangeAccordion, EachStreamFollowsItsNorms) {
  for (const AccordionCase& one : accordion_cases())
    for (const int ranks : {2, 4})
      run_local(ranks, [&](Group& group) {
        const auto model = accordion_model();
        Side side(group, model, accordion_options(one));
        const uint64_t interval = one.codec.find(";1)") != std::string::npos ? 2 : 4;
        std::map<std::string, Oracle> oracles;
        std::map<std::string, std::map<bool, uint64_t>> sizes;  // by stream and regime
        for (uint64_t step = 0; step < 32; ++step) {
          const StepReport report =
              accordion_step(side, accordion_gradients(model, group.rank(), step));
          const auto& streams = side.exchange().streams();
          for (size_t i = 0; i < streams.size(); ++i) {
            if (streams[i].name.starts_with("dense:")) continue;
            Oracle& oracle = oracles.try_emplace(streams[i].name, interval).first->second;
            const uint64_t size = size_of_step(report.streams[i]);
            auto& of_stream = sizes[streams[i].name];
            const auto [known, is_new] = of_stream.try_emplace(oracle.critical(), size);
            EXPECT_EQ(known->second, size) << one.codec << ' ' << streams[i].name << ' ' << step;
            oracle.deliver(tensors_of(streams[i], model, side.values));
          }
        }
        bool both = false;
        for (auto& [stream, of_stream] : sizes) {
          both |= of_stream.size() == 2;
          if (of_stream.size() < 2) continue;
          EXPECT_GT(of_stream[true], of_stream[false]) << one.codec;
        }
        EXPECT_EQ(group.max(both), 1u) << one.codec;  // in a hierarchy ranks have other streams
      });
}

// Streams of one exchange are in different regimes at the same time.
TEST(ExchangeAccordion, StreamsDecideForThemselves) {
  run_local(3, [&](Group& group) {
    const auto model = accordion_model();
    ExchangeOptions options = accordion_options({"topk:density=accordion(0.5;0.1;0.5;2)"});
    options.rules = {{.pattern = "b.*", .codec = "randomk:density=accordion(0.4;0.2;0.5;2)"},
                     {.pattern = "c.*", .codec = "topk:density=0.3"}};
    Side side(group, model, options);
    bool differ = false;
    for (uint64_t step = 0; step < 32; ++step) {
      const StepReport report =
          accordion_step(side, accordion_gradients(model, group.rank(), step));
      std::map<std::string, double> density;
      for (size_t i = 0; i < report.streams.size(); ++i)
        density[side.exchange().streams()[i].name] = static_cast<double>(report.streams[i].target) /
                                                     static_cast<double>(report.streams[i].values);
      EXPECT_DOUBLE_EQ(density["c.weight"], 0.3);
      EXPECT_TRUE(density["a.weight"] == 0.5 || density["a.weight"] == 0.1);
      EXPECT_TRUE(density["b.weight"] == 0.4 || density["b.weight"] == 0.2);
      differ |= (density["a.weight"] == 0.5) != (density["b.weight"] == 0.4);
    }
    EXPECT_TRUE(differ);
    for (const StateArray& array : side.store().save())
      EXPECT_THAT(array.name, ::testing::Not(::testing::StartsWith("c.weight/regime")));
  });
}

std::vector<std::string> regime_keys(Side& side) {
  std::vector<std::string> keys;
  for (const StateArray& array : side.store().save())
    if (array.name.ends_with("/regime/counts")) keys.push_back(array.name);
  return keys;
}

TEST(ExchangeAccordion, PhasesOfAScheduleHaveRegimesOfTheirOwn) {
  run_local(2, [&](Group& group) {
    const auto model = accordion_model();
    Side side(group, model,
              accordion_options({"topk:density=0.3 | 2: topk:density=accordion(0.5;0.1;0.5;2) | 6: "
                                 "topk:density=0.2"}));
    for (uint64_t step = 0; step < 16; ++step) {
      EXPECT_EQ(regime_keys(side).size(), step < 4 || step >= 12 ? 0u : 3u) << step;
      const StepReport report = accordion_step(side, gradients(model, group.rank(), 0));
      // The first interval of the phase ends with step 7.
      const double density = step < 4 ? 0.3 : step < 8 ? 0.5 : step < 12 ? 0.1 : 0.2;
      for (const StreamCounters& stream : report.streams) {
        if (stream.target == 0) continue;
        const double target = density * static_cast<double>(stream.values);
        EXPECT_EQ(stream.target, static_cast<uint64_t>(std::lround(target))) << step;
      }
    }
  });
}

// The codecs of both phases are the same, and intervals of two and three epochs tell them apart.
TEST(ExchangeAccordion, APhaseMayDifferInItsIntervalAlone) {
  run_local(2, [&](Group& group) {
    const auto model = accordion_model();
    ExchangeOptions options = accordion_options(
        {"topk:density=accordion(0.5;0.1;0.5;2) | 6: topk:density=accordion(0.5;0.1;0.5;3)"});
    options.feedback = "none";  // so that means have the same norm in every step
    Side side(group, model, options);
    for (uint64_t step = 0; step < 24; ++step) {
      const StepReport report = accordion_step(side, gradients(model, group.rank(), 0));
      const bool critical = step < 4 || (step >= 12 && step < 18);
      for (const StreamCounters& stream : report.streams) {
        if (stream.target == 0) continue;
        const double target = (critical ? 0.5 : 0.1) * static_cast<double>(stream.values);
        EXPECT_EQ(stream.target, static_cast<uint64_t>(std::lround(target))) << step;
      }
    }
  });
}

ExchangeOptions with(ExchangeOptions options, const std::string& codec) {
  options.codec = codec;
  return options;
}

// Into it, on with it in both regimes, to other intervals, and out of it; a restart goes on alike.
TEST(ExchangeAccordion, CodecsChangeIntoItAndOutOfIt) {
  for (const std::string codec : {"powersgd:min_compression=0,rank=", "topk:density="}) {
    const bool low_rank = codec.starts_with("powersgd");
    const auto accordion = [&](const std::string& rest) {
      return codec + (low_rank ? "accordion(3;1;" : "accordion(0.5;0.1;") + rest + ")";
    };
    run_local(2, [&](Group& group) {
      const auto model = accordion_model();
      const ExchangeOptions options = accordion_options({codec + (low_rank ? "2" : "0.3")});
      Side side(group, model, options);
      const auto steady = [&](int steps) {
        for (int i = 0; i < steps; ++i) accordion_step(side, gradients(model, group.rank(), 0));
      };
      const auto is_critical = [&] {
        int64_t counts[4] = {};
        EXPECT_TRUE(copy_state(side.store().save(), "a.weight/regime/counts", counts));
        return counts[0] == 1;
      };
      steady(2);
      EXPECT_THAT(regime_keys(side), IsEmpty());
      side.exchange().change(with(options, accordion("0.5;2")));
      EXPECT_EQ(regime_keys(side).size(), 3u);
      EXPECT_TRUE(is_critical());
      steady(5);
      EXPECT_FALSE(is_critical());

      // The same again, in other words: nothing changes.
      const StateArrays before = side.store().save();
      side.exchange().change(with(options, accordion("0.50; 2.0")));
      EXPECT_TRUE(same_state(side.store().save(), before));

      const auto store = std::make_shared<Store>();
      store->load(std::vector(2, before), group.rank(), 2).or_throw();
      ExchangeOptions now = side.exchange().options();
      now.first_step = 7;
      Side resumed(group, model, now, store);
      steady(1);
      accordion_step(resumed, gradients(model, group.rank(), 0));
      EXPECT_TRUE(same_bits(resumed.values, side.values)) << codec;
      EXPECT_TRUE(same_state(resumed.store().save(), side.store().save())) << codec;

      side.exchange().change(with(options, accordion("0.5;3")));
      EXPECT_TRUE(is_critical());
      side.exchange().change(options);
      EXPECT_THAT(regime_keys(side), IsEmpty());
      steady(1);
    });
  }
}

TEST(ExchangeAccordion, IsRefusedWhereRanksHaveOnlyPartsOrEpochsAreUnknown) {
  ExchangeOptions options{.codec = "uniform:bits=accordion(8;4)", .results = Results::kShard};
  EXPECT_THAT(
      std::string(check_exchange(options).message()),
      AllOf(
          HasSubstr("exchange: the schedule 'uniform:bits=accordion(8;4;0.5;10)' has an accordion"),
          HasSubstr("where results are shards a rank has only its own"),
          HasSubstr("choose a warmup, linear or table")));
  options.results = Results::kFull;
  EXPECT_TRUE(check_exchange(options));
  options.steps_per_epoch = 0;
  EXPECT_THAT(std::string(check_exchange(options).message()), HasSubstr("give steps_per_epoch"));
  options.codec = "uniform:bits=accordion(8;4;0.5;70steps)";
  EXPECT_TRUE(check_exchange(options));
  options.rules = {{.pattern = "*.bias", .codec = "uniform:bits=accordion(8;4)"}};
  EXPECT_THAT(std::string(check_exchange(options).message()), HasSubstr("rule '*.bias'"));
}

}  // namespace
}  // namespace thinwire::testing
