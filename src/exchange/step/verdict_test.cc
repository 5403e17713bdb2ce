// Tests of the fault word: packing loses nothing, and the same fault is the worst on every rank.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/step/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "exchange/testing/crowded_group.h"
#include "exchange/testing/error_of.h"
#include "thinwire/exchange.h"
#include "thinwire/shard_gather.h"

namespace thinwire {
namespace {

TEST(Verdict, NoFaultIsZero) {
  EXPECT_EQ(pack({}), 0u);
  EXPECT_EQ(unpack_verdict(0), Verdict{});
  EXPECT_EQ(FaultLog().word(), 0u);
}

TEST(Verdict, PackingLosesNothing) {
  for (const ErrorCode code : {ErrorCode::kNonFinite, ErrorCode::kCorrupt})
    for (const size_t stream :
         {size_t{0}, size_t{1}, size_t{255}, size_t{65536}, size_t{0xFFFFFFFF}})
      for (const int rank : {-1, 0, 1, 255, 65534}) {
        const Verdict verdict{.code = code, .stream = stream, .rank = rank};
        EXPECT_NE(pack(verdict), 0u);
        EXPECT_EQ(unpack_verdict(pack(verdict)), verdict) << stream << " " << rank;
      }
}

// 65535 ranks would have one whose number says that there is none.
TEST(Verdict, GroupsHaveAtMostAsManyRanksAsItCanName) {
  using testing::CrowdedGroup;
  using testing::error_of;
  CrowdedGroup most(kMostRanks), more(kMostRanks + 1);
  EXPECT_NO_THROW(check_rank_count(most, "here"));
  EXPECT_EQ(error_of([&] { check_rank_count(more, "here"); }),
            "here: 65535 ranks; frames have room for the numbers of 65534");
  Store store;
  const std::vector<TensorSpec> model = {{.name = "w", .shape = {4}}};
  const auto refused = ::testing::HasSubstr("room for the numbers of 65534");
  EXPECT_THAT(error_of([&] { make_exchange(more, store, model, {}); }), refused);
  EXPECT_THAT(error_of([&] { join_exchange(more, store, model, {}); }), refused);
  EXPECT_THAT(error_of([&] { make_shard_gather(more, {model}, {}); }), refused);
  EXPECT_THAT(error_of([&] { make_exchange(most, store, model, {}); }),
              ::testing::HasSubstr("sends nothing"));
}

TEST(Verdict, ARankThatAskedYieldsToEveryFault) {
  for (const int rank : {0, 1, 255, 65534}) {
    const Verdict asked{.rank = rank, .asked = true};
    EXPECT_EQ(unpack_verdict(pack(asked)), asked);
    EXPECT_LT(pack(asked), pack({ErrorCode::kCorrupt, 0xFFFFFFFF, -1}));
  }
  FaultLog log;
  for (const int rank : {7, 3, 5}) log.ask_to_skip(rank);
  EXPECT_EQ(unpack_verdict(log.word()), (Verdict{.rank = 3, .asked = true}));
}

TEST(Verdict, WorstIsTheSameInAnyOrder) {
  std::vector<Verdict> seen = {{ErrorCode::kCorrupt, 0, 0},
                               {ErrorCode::kNonFinite, 7, -1},
                               {ErrorCode::kNonFinite, 7, 2},
                               {ErrorCode::kNonFinite, 7, 1},
                               {ErrorCode::kNonFinite, 9, 0}};
  const auto before = [](const Verdict& a, const Verdict& b) { return pack(a) < pack(b); };
  std::sort(seen.begin(), seen.end(), before);
  do {
    FaultLog log;
    for (const Verdict& fault : seen) log.add(fault.code, fault.stream, fault.rank);
    EXPECT_EQ(unpack_verdict(log.word()), (Verdict{ErrorCode::kNonFinite, 7, 1}));
  } while (std::next_permutation(seen.begin(), seen.end(), before));
}

TEST(Verdict, WhatRanksAgreedOnNamesARankAndAStreamThatThereAre) {
  const auto read = [](uint64_t word) { return read_verdict(word, 3, 5, "here"); };
  EXPECT_EQ(read(0), Verdict{});
  for (const Verdict& good :
       {Verdict{ErrorCode::kNonFinite, 4, 2}, Verdict{ErrorCode::kCorrupt, 0, -1},
        Verdict{.rank = 2, .asked = true}})
    EXPECT_EQ(read(pack(good)), good);
  const uint64_t bad[] = {pack({ErrorCode::kNonFinite, 5, 2}), pack({ErrorCode::kCorrupt, 4, 3}),
                          pack({ErrorCode::kTimeout, 4, 2}), pack({.rank = 3, .asked = true}), 5};
  for (const uint64_t word : bad) {
    try {
      read(word);
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      EXPECT_STREQ(error.what(), "here: a rank's verdict on the step makes no sense");
    }
  }
}

TEST(Verdict, ClearForgets) {
  FaultLog log;
  log.add(ErrorCode::kCorrupt, 3, 1);
  log.clear();
  EXPECT_EQ(log.word(), 0u);
}

}  // namespace
}  // namespace thinwire
