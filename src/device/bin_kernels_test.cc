// AdaComp's texts, run on the processor, against kernel/bin_codes.h on every target, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include "device/bin_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "device/testing/coded_cases.h"
#include "device/testing/host_kernels.h"
#include "kernel/bin_codes.h"
#include "kernel/for_each_target.h"

namespace thinwire::device {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<uint32_t> patterns(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

struct Chosen {
  Bytes codes;
  uint64_t kept = 0, max_sum = 0;  // its bits
  std::vector<uint32_t> rest;
  bool operator==(const Chosen&) const = default;
};

constexpr float kScale = 0.7f;

Chosen by_simd(const std::vector<float>& g, const std::vector<float>& fresh, size_t bin) {
  Bytes codes(kernel::bin_code_size(bin) * g.size());
  const auto sent = kernel::select_bins(g, fresh, 1.5f, bin, codes);
  codes.resize(sent.size);
  auto rest = g;
  EXPECT_EQ(kernel::add_bins(codes, bin, -kScale, rest), sent.size);
  return {codes, sent.kept, std::bit_cast<uint64_t>(sent.max_sum), patterns(rest)};
}

// Codes lie at an odd address.
Chosen by_text(Launcher& on, std::vector<float> g, std::vector<float> fresh, size_t bin,
               bool in_place) {
  std::vector<BinChoice> choices(bins_of(g.size(), bin));
  std::vector<uint64_t> offsets(sum_room(choices.size()));
  std::vector<BinTotal> totals(bin_totals(choices.size()));
  choose_bins(on, g.data(), fresh.data(), g.size(), 1.5f, bin, choices.data(), offsets.data(),
              totals.data());
  const uint64_t number = totals[0].codes;
  Bytes codes(1 + number * kernel::bin_code_size(bin));
  std::vector<float> other(g.size());
  std::vector<float>& rest = in_place ? g : other;
  write_bins(on, g.data(), fresh.data(), g.size(), 1.5f, bin, choices.data(), offsets.data(),
             kScale, codes.data() + 1, rest.data());
  return {Bytes(codes.begin() + 1, codes.end()), totals[0].kept,
          std::bit_cast<uint64_t>(totals[0].max_sum), patterns(rest)};
}

constexpr size_t kBins[] = {1, 7, 50, 63, 64, 500, 512, 513, 16383};

TEST(BinTexts, HaveTheBitsOfTheSimdKernels) {
  for (const Values kind : kAllValues)
    for (const size_t count : kSizes)
      for (const size_t bin : kBins) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(count) + ", " +
                     std::to_string(bin));
        const auto g = make_values(kind, count), fresh = make_values(Values::kNormal, count, 3);
        HostLauncher forward, backward(true);
        const Chosen text = by_text(forward, g, fresh, bin, false);
        ASSERT_EQ(by_text(backward, g, fresh, bin, true), text);
        kernel::for_each_target([&](std::string_view target) {
          SCOPED_TRACE(target);
          ASSERT_EQ(text, by_simd(g, fresh, bin));
        });
      }
}

struct AddedBins {
  std::optional<size_t> size;
  std::vector<uint32_t> sum;
};

AddedBins add_by_text(Launcher& on, const Bytes& codes, size_t bin, size_t count) {
  auto sum = make_values(Values::kNormal, count, 17);
  Bytes odd(1 + codes.size());
  std::copy(codes.begin(), codes.end(), odd.begin() + 1);
  const size_t bytes = kernel::bin_code_size(bin);
  std::vector<uint64_t> tiles(code_room(codes.size() / bytes));
  uint64_t used = 0;
  uint32_t bad = 0;
  add_bins(on, odd.data() + 1, codes.size(), bin, 0.3f, tiles.data(), sum.data(), count, &used,
           &bad);
  if (bad != 0 || used == 0) return {std::nullopt, {}};
  return {used * bytes, patterns(sum)};
}

TEST(BinTexts, AddWhatTheKernelAdds) {
  for (const size_t count : {1, 50, 64, 1000, 20011})
    for (const size_t bin : kBins) {
      SCOPED_TRACE(std::to_string(count) + ", " + std::to_string(bin));
      const auto g = make_values(Values::kHeavyTail, count);
      Bytes codes = by_simd(g, g, bin).codes;
      const size_t size = codes.size();
      codes.resize(size + 5, std::byte{0x81});  // those of what follows
      auto sum = make_values(Values::kNormal, count, 17);
      ASSERT_EQ(kernel::add_bins(codes, bin, 0.3f, sum), size);
      for (const bool backward : {false, true}) {
        HostLauncher on(backward);
        const AddedBins added = add_by_text(on, codes, bin, count);
        ASSERT_EQ(added.size, size);
        ASSERT_EQ(added.sum, patterns(sum));
      }
      codes.resize(size - 1);
      HostLauncher on;
      ASSERT_EQ(add_by_text(on, codes, bin, count).size, std::nullopt);
    }
}

// Codes with a byte changed, and codes that nobody wrote.
TEST(BinTexts, AcceptWhatTheKernelAccepts) {
  HostLauncher on;
  size_t good = 0, refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const size_t bin = kBins[seed % std::size(kBins)], count = 1 + seed % 211;
    Bytes codes = by_simd(make_values(Values::kNormal, count, seed),
                          make_values(Values::kNormal, count, 1), bin)
                      .codes;
    codes[random_below({.seed = seed}, 0, codes.size())] =
        static_cast<std::byte>(random_word({.seed = seed}, 9));
    if (seed % 3 == 0)
      for (size_t i = 0; i < codes.size(); ++i)
        codes[i] = static_cast<std::byte>(random_word({.seed = seed}, 100 + i));
    auto sum = make_values(Values::kNormal, count, 17);
    const auto size = kernel::add_bins(codes, bin, 0.3f, sum);
    const AddedBins added = add_by_text(on, codes, bin, count);
    ASSERT_EQ(added.size, size) << seed;
    if (size) {
      ASSERT_EQ(added.sum, patterns(sum)) << seed;
    }
    ++(size ? good : refused);
  }
  EXPECT_GT(good, 100u);
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace thinwire::device
