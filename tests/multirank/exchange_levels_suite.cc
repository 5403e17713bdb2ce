// Tests of exchanges whose ranks are whole groups: means, bytes of each level, faults, mistakes.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "exchange/testing/error_of.h"
#include "exchange/testing/exchange_testing.h"
#include "exchange/testing/tampering_group.h"
#include "multirank/ranks.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

using ::testing::HasSubstr;

std::vector<int> two_and_more() {
  std::vector<int> counts = rank_counts();
  std::erase_if(counts, [](int count) { return count == 1 || count == 5 || count > 6; });
  if (rank_counts().back() == 9) counts.push_back(9);
  return counts;
}

// The sizes that groups of `ranks` ranks may have, but 1.
std::vector<int> sizes_of_groups(int ranks) {
  std::vector<int> sizes;
  for (int size = 2; size <= ranks; ++size)
    if (ranks % size == 0) sizes.push_back(size);
  return sizes;
}

class ExchangeLevels : public ::testing::TestWithParam<int> {
 protected:
  int last() const { return GetParam() - 1; }

  // Calls body(group, inside) for every size of groups.
  void on_all(const std::function<void(Group&, int inside)>& body) {
    for (const int inside : sizes_of_groups(GetParam()))
      on_ranks(GetParam(), [&](Group& group) { body(group, inside); });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeLevels, ::testing::ValuesIn(two_and_more()),
                         ::testing::PrintToStringParamName());

// (x_first + ... + x_last) (1/count), added from the left.
Tensors mean_of(const std::vector<Tensors>& all, size_t first, size_t count) {
  Tensors mean = all[first];
  for (size_t t = 0; t < mean.size(); ++t)
    for (size_t i = 0; i < mean[t].size(); ++i) {
      float sum = all[first][t][i];
      for (size_t rank = first + 1; rank < first + count; ++rank) sum += all[rank][t][i];
      mean[t][i] = sum * (1.0f / static_cast<float>(count));
    }
  return mean;
}

std::vector<Tensors> group_means(int ranks, int inside, uint64_t step) {
  const std::vector<Tensors> all = all_gradients(small_model(), ranks, step);
  std::vector<Tensors> means;
  for (size_t first = 0; first < all.size(); first += static_cast<size_t>(inside))
    means.push_back(mean_of(all, first, static_cast<size_t>(inside)));
  return means;
}

ExchangeOptions levels(ExchangeOptions options, int inside) {
  options.inside = inside;
  return options;
}

StepReport step_with(Side& side, Tensors values) {
  side.values = std::move(values);
  for (size_t i = side.values.size(); i-- > 0;) side.start(i);
  return side.exchange().finish();
}

TEST_P(ExchangeLevels, WithoutLossTheMeanIsThatOfTheGroupsMeansInTheirOrder) {
  for (const std::string method : {"dense", "scatter-reduce", "gather"})
    for (const size_t bucket_bytes : {300, 1 << 20})
      on_all([&](Group& group, int inside) {
        Side side(
            group, small_model(),
            {.codec = "fp32", .method = method, .inside = inside, .bucket_bytes = bucket_bytes});
        for (uint64_t step = 0; step < 3; ++step) {
          EXPECT_FALSE(side.step(step).skipped);
          const std::vector<Tensors> means = group_means(group.size(), inside, step);
          if (method != "gather" || means.size() == 1) {  // which adds shares of 1/n
            EXPECT_TRUE(same_bits(side.values, mean_of(means, 0, means.size())))
                << method << ", groups of " << inside;
            continue;
          }
          Tensors mean = means[0];
          for (size_t t = 0; t < mean.size(); ++t)
            for (size_t i = 0; i < mean[t].size(); ++i) {
              float sum = 0;
              for (const Tensors& one : means)
                sum += 1.0f / static_cast<float>(means.size()) * one[t][i];
              mean[t][i] = sum;
            }
          EXPECT_TRUE(same_bits(side.values, mean)) << method << ", groups of " << inside;
        }
      });
}

std::vector<ExchangeOptions> all_options() {
  std::vector<ExchangeOptions> all = codecs_and_methods(9);
  for (const char* codec : {"int8", "powersgd:rank=2", "sidco:density=0.1", "qsgd", "signum",
                            "scalecom:density=0.1", "fp32 | 2steps: topk:density=0.1"})
    all.push_back({.codec = codec});
  all.push_back({.codec = "topk:density=0.1", .feedback = "dgc"});
  all.push_back({.codec = "topk:density=0.1", .grouping = Grouping::kModel});
  all.push_back({.codec = "topk:density=0.1", .method = "sparse-reduce"});
  all.push_back({.codec = "fp32", .combine = "median"});
  all.push_back({.codec = "topk:density=0.1",
                 .rules = {{.pattern = "linear.*", .codec = "int8"},
                           {.pattern = "conv.*", .codec = "sidco:density=0.1"}}});
  std::erase_if(all, [](const ExchangeOptions& options) {
    return !check_exchange(levels(options, 2)).is_ok();
  });
  for (ExchangeOptions& options : all) {
    options.bucket_bytes = 1500;
    options.chunk_values = 200;
  }
  return all;
}

// What a rank keeps is what a rank keeps that stands for its group, of the tensors that it holds.
void expect_memories_of(const Store& flat, const Store& own, const std::string& what) {
  const StateArrays all = flat.save();
  for (const StateArray& array : own.save()) {
    if (is_seal(array) || array.name == "exchange/inside") continue;
    const auto twin = std::find_if(
        all.begin(), all.end(), [&](const StateArray& other) { return other.name == array.name; });
    ASSERT_NE(twin, all.end()) << what << ": " << array.name;
    EXPECT_EQ(twin->data, array.data) << what << ": " << array.name;
  }
}

TEST_P(ExchangeLevels, AnyCodecGivesWhatAnExchangeOfTheGroupsMeansGives) {
  for (const ExchangeOptions& options : all_options()) {
    if (options.grouping == Grouping::kGlobal) continue;  // each holder has a threshold of its own
    on_all([&](Group& group, int inside) {
      Side side(group, small_model(), levels(options, inside));
      const std::unique_ptr<Group> place = group.split(group.rank() % inside);
      Side flat(*place, small_model(), options);
      const std::string what =
          options.codec + " by " + options.method + ", groups of " + std::to_string(inside);
      for (uint64_t step = 0; step < 5; ++step) {
        const StepReport report = side.step(step);
        EXPECT_FALSE(report.skipped);
        EXPECT_EQ(report.participants, static_cast<uint64_t>(group.size()));
        const auto means = group_means(group.size(), inside, step);
        step_with(flat, means[static_cast<size_t>(place->rank())]);
        EXPECT_TRUE(same_bits(side.values, flat.values)) << what << ", step " << step;
      }
      expect_memories_of(flat.store(), side.store(), what);
    });
  }
}

TEST_P(ExchangeLevels, EachHolderHasAThresholdForItsTensors) {
  on_all([&](Group& group, int inside) {
    Side side(group, small_model(),
              levels({.codec = "topk:density=0.1", .grouping = Grouping::kGlobal}, inside));
    for (uint64_t step = 0; step < 5; ++step) {
      EXPECT_FALSE(side.step(step).skipped);
      EXPECT_TRUE(same_on_all_ranks(group, side.values));
    }
  });
}

TEST_P(ExchangeLevels, EveryTensorHasOneHolderInEachGroup) {
  for (const ExchangeOptions& options : all_options())
    on_all([&](Group& group, int inside) {
      Side side(group, small_model(), levels(options, inside));
      const auto place = static_cast<size_t>(group.rank() % inside);
      uint64_t values = 0;
      for (const StreamSpec& stream : side.exchange().streams()) values += stream.count();
      std::vector<uint64_t> all(static_cast<size_t>(group.size()));
      group.all_gather(std::as_bytes(std::span(&values, 1)),
                       std::as_writable_bytes(std::span(all)));
      uint64_t total = 0;
      for (const uint64_t one : all) total += one;
      EXPECT_EQ(total, 1384u * static_cast<uint64_t>(group.size() / inside));
      EXPECT_EQ(all[place], values);  // the same in group 0
      const StepReport report = side.step(0);
      EXPECT_EQ(report.streams.size(), side.exchange().streams().size());
    });
}

uint64_t agreement(int ranks) {
  uint64_t bytes = 0;
  while (1 << bytes / 16 < ranks) bytes += 16;
  return bytes;
}

// One tensor for each place, so that each rank holds one.
TEST_P(ExchangeLevels, BytesOfEachLevelAreThoseOfTheFormulae) {
  for (const std::string codec : {"fp32", "int8", "topk:density=0.1"})
    on_all([&](Group& group, int inside) {
      const int groups = group.size() / inside;
      const auto g = static_cast<uint64_t>(inside), m = static_cast<uint64_t>(groups);
      const uint64_t count = 256 * 4 * m;  // whole blocks for each owner
      std::vector<TensorSpec> model;
      for (int i = 0; i < inside; ++i)
        model.push_back({"w" + std::to_string(i), {count}, TensorKind::kLinear});
      Side side(group, model, {.codec = codec, .inside = inside, .bucket_bytes = 4 * count});
      side.step(0);
      const StepReport report = side.step(1);
      ASSERT_EQ(report.streams.size(), 1u);
      EXPECT_EQ(report.streams[0].values, count);

      const uint64_t whole = 4 * count + kFrameHeaderSize;
      const uint64_t inside_bytes = 2 * (g - 1) * whole + agreement(inside);
      uint64_t between = (m - 1) * (8 + report.streams[0].frame_bytes);
      if (codec == "fp32") between = 2 * (m - 1) * (4 * count / m + kFrameHeaderSize);
      if (codec == "int8")
        between = 2 * (m - 1) * (count / m + count / m / 256 * 4 + kFrameHeaderSize);
      between += agreement(groups);
      EXPECT_EQ(report.inside_bytes, inside_bytes) << codec << ", groups of " << inside;
      EXPECT_EQ(report.between_bytes, between) << codec << ", groups of " << inside;
      EXPECT_EQ(report.sent_bytes, inside_bytes + between);
      if (codec != "topk:density=0.1") {
        EXPECT_EQ(report.received_bytes, report.sent_bytes);
      }
      const auto n = static_cast<uint64_t>(group.size());
      EXPECT_EQ(report.dense_bytes, 2 * (n - 1) * 4 * count * g / n);
    });
  on_ranks(GetParam(), [](Group& group) {
    Side side(group, small_model(), {});
    const StepReport report = side.step(0);
    EXPECT_EQ(report.inside_bytes, 0u);
    EXPECT_EQ(report.between_bytes, report.sent_bytes);
  });
}

bool all_zero(const Tensors& tensors) {
  for (const Values& values : tensors)
    for (const float value : values)
      if (value != 0) return false;
  return true;
}

constexpr size_t kLinear = 7;  // "linear.weight" of small_model

// Whether step 1 of `side`, given `values`, was undone without trace: the next step of `clean` and
// `side` are alike.
void expect_undone(Side& side, Side& clean, const StateArrays& before, const std::string& what) {
  EXPECT_TRUE(all_zero(side.values)) << what;
  EXPECT_TRUE(same_state(side.store().save(), before)) << what;
  clean.exchange().set_step(2);
  for (uint64_t step = 2; step < 4; ++step) {
    EXPECT_FALSE(side.step(step).skipped) << what;
    clean.step(step);
    EXPECT_TRUE(same_bits(side.values, clean.values)) << what;
  }
}

TEST_P(ExchangeLevels, ANonFiniteGradientOnOneRankUndoesTheStepOnAll) {
  for (const ExchangeOptions& options : all_options())
    on_all([&](Group& group, int inside) {
      Side side(group, small_model(), levels(options, inside));
      Side clean(group, small_model(), levels(options, inside));
      side.step(0);
      clean.step(0);
      const StateArrays before = side.store().save();
      Tensors values = gradients(small_model(), group.rank(), 1);
      if (group.rank() == last()) values[kLinear].back() = NAN;
      const StepReport report = step_with(side, std::move(values));
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.fault.code, ErrorCode::kNonFinite);
      EXPECT_EQ(report.fault.rank, last());
      EXPECT_THAT(report.fault.stream,
                  ::testing::AnyOf("linear.weight", "model", ::testing::StartsWith("model:")));
      expect_undone(side, clean, before, options.codec);
    });
}

TEST_P(ExchangeLevels, SumsMayOverflowInsideAndBetween) {
  on_all([&](Group& group, int inside) {
    Side side(group, {{"v", {5}, TensorKind::kLinear}, {"w", {30}, TensorKind::kLinear}},
              {.codec = "fp32", .method = "dense", .inside = inside});
    const bool between = group.size() > inside;
    for (const bool is_inside : {true, false}) {
      if (!is_inside && !between) continue;
      // Inside the sum over the group is too large; between only that over groups is.
      const float value = is_inside ? 3e38f : 2.5e38f / static_cast<float>(inside);
      Tensors values = {Values(5, 1.0f), Values(30, is_inside ? value : 0.0f)};
      if (!is_inside && group.rank() % inside == 0) values[1] = Values(30, 3e38f);
      const StepReport report = step_with(side, std::move(values));
      if (is_inside || group.size() / inside > inside) {
        EXPECT_TRUE(report.skipped);
        EXPECT_EQ(report.fault.code, ErrorCode::kNonFinite);
        EXPECT_EQ(report.fault.rank, -1);
        EXPECT_EQ(report.fault.stream, "w");
        EXPECT_TRUE(all_zero(side.values));
      } else {
        EXPECT_FALSE(report.skipped);
      }
    }
  });
}

// Every message of each level counts: wherever the last rank sees a bit flipped, all skip.
TEST_P(ExchangeLevels, ACorruptMessageOfEitherLevelUndoesTheStepOnAll) {
  const uint8_t fp32 = make_codec("fp32").value().codec->info().id;
  const std::vector<TensorSpec> model = {{"v", {40, 30}, TensorKind::kLinear},
                                         {"w", {30, 40}, TensorKind::kLinear},
                                         {"x", {20, 60}, TensorKind::kLinear},
                                         {"y", {20, 60}, TensorKind::kLinear}};
  for (const std::string codec : {"int8", "topk:density=0.1", "powersgd:rank=2"})
    for (const bool is_inside : {true, false})
      for (const bool is_result : {true, false})
        for (const double where : {0.0, 0.3, 1.0})
          on_all([&](Group& group, int inside) {
            if (!is_inside && group.size() == inside) return;
            bool armed = false, met = false;
            TamperingGroup tampering(group, [&](int from, int tag, std::span<std::byte> message) {
              if (!armed || message.size() <= 8 || tag >= 30000 || group.rank() != last()) return;
              const FrameHeader header = read_frame(message).value().header;
              if ((header.codec == fp32) != is_inside) return;
              if (is_inside && ((header.flags & kFrameResult) != 0) != is_result) return;
              if (from != 0) return;
              armed = false;
              met = true;
              message[static_cast<size_t>(where * static_cast<double>(message.size() - 1))] ^=
                  std::byte{0x10};
            });
            Side side(tampering, model, {.codec = codec, .inside = inside, .bucket_bytes = 3000});
            Side clean(tampering, model, {.codec = codec, .inside = inside, .bucket_bytes = 3000});
            side.step(0);
            clean.step(0);
            const StateArrays before = side.store().save();
            armed = true;
            const StepReport report = side.step(1);
            if (group.max(met) == 0) {  // beyond four places the last one holds no tensor
              EXPECT_TRUE(inside > 4 && !(is_inside && is_result))
                  << codec << " at " << where << ", groups of " << inside;
              return;
            }
            EXPECT_TRUE(report.skipped) << codec << " at " << where;
            EXPECT_EQ(report.fault.code, ErrorCode::kCorrupt);
            EXPECT_EQ(report.fault.rank,
                      is_inside ? group.size() - inside : (group.size() - 1) % inside);
            expect_undone(side, clean, before, codec);
          });
}

TEST_P(ExchangeLevels, ARankMayHaveTheStepSkipped) {
  on_all([&](Group& group, int inside) {
    const ExchangeOptions options{.codec = "topk:density=0.1", .inside = inside};
    Side side(group, small_model(), options);
    Side clean(group, small_model(), options);
    side.step(0);
    clean.step(0);
    const StateArrays before = side.store().save();
    Tensors values = gradients(small_model(), group.rank(), 1);
    if (group.rank() == last()) {
      side.exchange().abstain(Abstention::kSkipsStep);
      values[kLinear].back() = NAN;
    }
    const StepReport report = step_with(side, std::move(values));
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.fault.code, ErrorCode::kOk);
    EXPECT_EQ(report.fault.rank, last());
    expect_undone(side, clean, before, "asked");
    EXPECT_THROW(side.exchange().abstain(Abstention::kSitsOut), Error);
    EXPECT_THROW(side.exchange().set_weight(2), Error);
    EXPECT_THROW(side.exchange().set_weighted(true), Error);
  });
}

TEST_P(ExchangeLevels, TensorsMayBeOfBfloatsOrMissing) {
  on_all([&](Group& group, int inside) {
    const std::vector<TensorSpec> model = {{"v", {3}, TensorKind::kLinear},
                                           {"w", {3}, TensorKind::kLinear}};
    Side side(group, model, {.codec = "fp32", .inside = inside});
    std::vector<uint16_t> bfloats = {0x3F80, 0x4000, 0xC000};  // 1, 2, -2
    side.exchange().start(1, {.data = bfloats.data(), .count = 3, .dtype = DType::kBFloat16});
    EXPECT_FALSE(side.exchange().finish().skipped);
    EXPECT_EQ(bfloats, (std::vector<uint16_t>{0x3F80, 0x4000, 0xC000}));
  });
}

TEST_P(ExchangeLevels, MistakesAreNamedOnAllRanks) {
  on_ranks(GetParam(), [&](Group& group) {
    const auto made = [&](const ExchangeOptions& options) {
      return error_of([&] { Side(group, small_model(), options); });
    };
    EXPECT_THAT(made({.inside = group.rank() == last() ? group.size() : 1}),
                HasSubstr("ranks do not agree"));
    EXPECT_THAT(made({.inside = group.rank() == last() ? group.size() : 1}), HasSubstr("'inside "));
    EXPECT_THAT(
        made({.inside = group.size() + 1}),
        AllOf(HasSubstr("do not make up " + std::to_string(group.size()) + " ranks"),
              HasSubstr("choose one of 1, "), HasSubstr(", " + std::to_string(group.size()))));
    EXPECT_THAT(made({.method = "library", .inside = group.size()}),
                HasSubstr("method library waits for other groups"));
    EXPECT_THAT(made({.inside = 0}), HasSubstr("1 without a hierarchy"));
    EXPECT_THAT(made({.weighted = true, .inside = group.size()}), HasSubstr("weighted = false"));
    EXPECT_THAT(made({.inside = group.size(), .results = Results::kShard}),
                HasSubstr("shards need inside = 1"));
    EXPECT_THAT(made({.codec = "topk", .feedback = "ef21", .inside = group.size()}),
                HasSubstr("memory ef21 follows the mean"));
  });
}

TEST_P(ExchangeLevels, CodecsAndRulesMayChangeInMidRun) {
  on_all([&](Group& group, int inside) {
    const ExchangeOptions first{.codec = "topk:density=0.1", .inside = inside};
    ExchangeOptions second = first;
    second.codec = "int8";
    // Without its first tensor, so that the others have other places in their section, and other
    // owners.
    second.rules = {{.pattern = "linear.*", .codec = "topk:density=0.5"},
                    {.pattern = "conv.weight", .codec = "topk:density=0.5"}};
    const std::unique_ptr<Group> place = group.split(group.rank() % inside);
    Side side(group, small_model(), first);
    Side flat(*place, small_model(), levels(first, 1));
    for (uint64_t step = 0; step < 4; ++step) {
      if (step == 2) {
        side.exchange().change(second);
        flat.exchange().change(levels(second, 1));
      }
      side.step(step);
      step_with(flat, group_means(group.size(), inside, step)[static_cast<size_t>(place->rank())]);
      EXPECT_TRUE(same_bits(side.values, flat.values)) << "step " << step;
    }
    expect_memories_of(flat.store(), side.store(), "changed");
    second.inside = 1;
    EXPECT_THAT(error_of([&] { side.exchange().change(second); }), HasSubstr("another option"));
  });
}

TEST_P(ExchangeLevels, AChangeCannotMoveTensorsToOtherHolders) {
  on_all([&](Group& group, int inside) {
    Side side(group, small_model(), {.codec = "fp32", .inside = inside});
    side.step(0);
    const std::string error = error_of([&] {
      side.exchange().change({.codec = "fp16", .inside = inside, .grouping = Grouping::kModel});
    });
    EXPECT_THAT(error, HasSubstr("which different ranks of a group hold"));
    EXPECT_FALSE(side.step(1).skipped);
  });
}

}  // namespace
}  // namespace thinwire::testing
