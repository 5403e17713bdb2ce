// Selection and sums over tails as texts, run on the processor, against the kernels of src/kernel,
// bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include "device/selection_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/testing/coded_cases.h"
#include "device/testing/host_kernels.h"
#include "device/work_grid.h"
#include "kernel/for_each_target.h"
#include "kernel/kth_magnitude.h"
#include "kernel/log_total.h"
#include "kernel/select.h"
#include "kernel/top_selector.h"
#include "kernel/value_sample.h"

namespace thinwire::device {
namespace {

struct Selected {
  std::vector<uint32_t> positions, kept, rest;
  bool operator==(const Selected&) const = default;
};

std::vector<uint32_t> bits_of_floats(std::span<const float> values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

Selected select_by_text(Launcher& on, const std::vector<float>& values, float threshold,
                        size_t most, bool in_place) {
  std::vector<float> from = values, kept(values.size()), other(values.size());
  std::vector<uint32_t> positions(values.size());
  std::vector<uint64_t> tiles(tile_room(values.size()));
  std::vector<float>& rest = in_place ? from : other;
  uint64_t found = 0;
  count_above(on, from.data(), from.size(), threshold, tiles.data(), &found);
  write_above(on, from.data(), from.size(), threshold, most, tiles.data(), positions.data(),
              kept.data(), rest.data());
  const size_t written = std::min<uint64_t>(found, most);
  positions.resize(written);
  return {positions, bits_of_floats(std::span(kept).first(written)), bits_of_floats(rest)};
}

Selected select_by_simd(const std::vector<float>& values, float threshold) {
  std::vector<float> rest = values, kept(values.size());
  std::vector<uint32_t> positions(values.size());
  const size_t found = kernel::select_above(rest, 0, threshold, positions, kept, rest).kept;
  positions.resize(found);
  return {positions, bits_of_floats(std::span(kept).first(found)), bits_of_floats(rest)};
}

TEST(SelectionTexts, SelectWhatTheSimdKernelsSelect) {
  for (const Values kind : kAllValues)
    for (const size_t count : kSizes)
      for (const float threshold : {0.0f, 0.5f, 2.0f, 1e30f}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(count));
        const auto values = make_values(kind, count);
        HostLauncher forward, backward(true);
        const Selected by_text = select_by_text(forward, values, threshold, count, false);
        ASSERT_EQ(select_by_text(backward, values, threshold, count, true), by_text);
        kernel::for_each_target([&](std::string_view target) {
          SCOPED_TRACE(target);
          ASSERT_EQ(by_text, select_by_simd(values, threshold));
        });
      }
}

TEST(SelectionTexts, KeepTheFirstWhereTooManyPass) {
  const auto values = make_values(Values::kNormal, 5000);
  HostLauncher on;
  const Selected all = select_by_simd(values, 0.5f);
  const Selected some = select_by_text(on, values, 0.5f, 1000, false);
  ASSERT_GT(all.positions.size(), 1000u);
  ASSERT_EQ(some.positions.size(), 1000u);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(some.positions[i], all.positions[i]);
  const uint32_t last = some.positions.back();
  const auto bits = bits_of_floats(values);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(some.rest[i], i <= last ? all.rest[i] : bits[i]) << i;
}

// The k largest by text, k from 1 to all, against TopSelector.
TEST(SelectionTexts, SelectTheLargestOfAll) {
  for (const Values kind : kAllValues)
    for (const size_t count : kSizes)
      for (const size_t k : {size_t{1}, count / 100, count / 3, count}) {
        if (k == 0 || count == 0) continue;
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(count) + ", " +
                     std::to_string(k));
        const auto values = make_values(kind, count);
        kernel::TopSelector selector(count, k);
        const auto by_kernel = selector.select(values);
        const auto [magnitude, above] = kernel::kth_magnitude(values, k);
        for (const bool backward : {false, true}) {
          HostLauncher on(backward);
          std::vector<uint32_t> bins(kKthBins, 0xEEEEEEEE), positions(count);
          KthState kth{1, 2, 3};
          find_kth(on, values.data(), count, k, bins.data(), &kth);
          ASSERT_EQ(kth.bits, std::bit_cast<uint32_t>(magnitude));
          ASSERT_EQ(kth.above, above);
          const size_t ties = kth.bits == 0 ? 0 : k - kth.above;
          std::vector<float> rest = values, kept(count);
          std::vector<uint64_t> tiles(2 * tile_room(count)), found(2);
          float* const to = rest.data();
          select_top(on, to, count, kth.magnitude(), ties, positions.data(), kept.data(), to,
                     tiles.data(), found.data());
          const size_t number = found[0] + ties;
          ASSERT_EQ(std::vector<uint32_t>(positions.begin(), positions.begin() + number),
                    std::vector<uint32_t>(by_kernel.begin(), by_kernel.end()));
          std::vector<float> expected = values;
          for (size_t i = 0; i < number; ++i) {
            ASSERT_EQ(kept[i], values[positions[i]]);
            expected[positions[i]] = 0.0f;
          }
          ASSERT_EQ(bits_of_floats(rest), bits_of_floats(expected));
          uint64_t counted = 0;
          count_above(on, values.data(), count, kth.magnitude(), tiles.data(), &counted);
          ASSERT_EQ(counted, above);
        }
      }
}

TEST(SelectionTexts, SampleTheSamePlaces) {
  for (const size_t count : {1, 100, 20011})
    for (const size_t size : {1, 7, 99})
      for (const uint32_t phase : {0u, 123456789u, 4000000000u}) {
        if (size > count) continue;
        const auto values = make_values(Values::kNormal, count);
        std::vector<float> by_kernel(size), by_text(size);
        kernel::sample_values(values, phase, by_kernel);
        HostLauncher on;
        sample_values(on, values.data(), count, phase, by_text.data(), size);
        ASSERT_EQ(by_text, by_kernel);
      }
}

TEST(SelectionTexts, SumTailsToTheSameBits) {
  for (const Values kind : kAllValues)
    for (const size_t count : kSizes)
      for (const float share : {0.0f, 1e-3f, 0.5f, 1.0f}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(count));
        const auto values = make_values(kind, count);
        float largest = 0;
        for (const float value : values) largest = std::max(largest, std::abs(value));
        for (const bool backward : {false, true}) {
          HostLauncher on(backward);
          std::vector<TailEntry> entries(tail_entries(count));
          tail_moments(on, values.data(), count, share * largest, largest, entries.data());
          const kernel::TailMoments by_text = tail_of(entries[0], largest);
          kernel::for_each_target([&](std::string_view target) {
            SCOPED_TRACE(target);
            const auto by_simd = kernel::tail_moments(values, share * largest, largest);
            ASSERT_EQ(by_text.count, by_simd.count);
            ASSERT_EQ(std::bit_cast<uint64_t>(by_text.sum), std::bit_cast<uint64_t>(by_simd.sum));
            ASSERT_EQ(std::bit_cast<uint64_t>(by_text.square_sum),
                      std::bit_cast<uint64_t>(by_simd.square_sum));
            ASSERT_EQ(by_text.smallest, by_simd.smallest);
          });
        }
      }
}

TEST(SelectionTexts, MultiplyToTheSameSumsOfLogarithms) {
  for (const Values kind : kAllValues)
    for (const size_t count : kSizes)
      for (const auto& [guard, unit] : {std::pair(0x1p-52, 0.7), std::pair(1e22, 1e-3)}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(count));
        const auto values = make_values(kind, count);
        const size_t whole = count - count % kernel::kLogLanes;
        for (const bool backward : {false, true}) {
          HostLauncher on(backward);
          std::vector<kernel::LogChunk> chunks(log_chunks_of(whole));
          log_chunks(on, values.data(), whole, guard, unit, chunks.data());
          kernel::LogTotal total;
          for (const kernel::LogChunk& chunk : chunks) total.add(chunk);
          const double by_text = total.sum(whole, std::span(values).subspan(whole), guard, unit);
          kernel::for_each_target([&](std::string_view target) {
            SCOPED_TRACE(target);
            ASSERT_EQ(std::bit_cast<uint64_t>(by_text),
                      std::bit_cast<uint64_t>(kernel::log_sum(values, guard, unit)));
          });
        }
      }
}

TEST(SelectionTexts, AddAndPutValuesAtTheirPositions) {
  const std::vector<uint32_t> positions = {0, 3, 31, 32, 999};
  const std::vector<float> values = {0.1f, -0.2f, 1e30f, 0.0f, 7.0f};
  const auto before = make_values(Values::kNormal, 1000);
  std::vector<float> sum = before, rest = before, expected = before, placed = before;
  for (size_t k = 0; k < positions.size(); ++k) {
    expected[positions[k]] += 0.3f * values[k];
    placed[positions[k]] = values[k];
  }
  HostLauncher on;
  add_at(on, positions.data(), values.data(), positions.size(), 0.3f, sum.data());
  put_at(on, positions.data(), values.data(), positions.size(), rest.data());
  EXPECT_EQ(sum, expected);
  EXPECT_EQ(rest, placed);
}

// More chunks than a block has threads: 2 blocks of 256, and 3 more.
TEST(SelectionTexts, TailsOfManyChunksAreAddedInTheirOrder) {
  std::vector<TailEntry> chunks(515);
  TailEntry expected{.sum = 0, .square_sum = 0, .count = 0, .smallest = 0x7f800000, .unused = 0};
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i] = {1.0 / static_cast<double>(i + 1), 1e10 / static_cast<double>(i * i + 3), i,
                 static_cast<uint32_t>(1000 + i * 7919 % 515), 0};
    expected.sum += chunks[i].sum;
    expected.square_sum += chunks[i].square_sum;
    expected.count += chunks[i].count;
    expected.smallest = std::min(expected.smallest, chunks[i].smallest);
  }
  TailEntry total{};
  HostLauncher launcher;
  launch(launcher, "tails/fold_tail", kOneBlock, static_cast<const TailEntry*>(chunks.data()),
         uint64_t{chunks.size()}, &total);
  EXPECT_EQ(total.sum, expected.sum);
  EXPECT_EQ(total.square_sum, expected.square_sum);
  EXPECT_EQ(total.count, expected.count);
  EXPECT_EQ(total.smallest, expected.smallest);
}

}  // namespace
}  // namespace thinwire::device
