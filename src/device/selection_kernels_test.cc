// Selection and packing as texts, run on the processor, against the kernels of src/kernel, bit for bit.
// SPDX-License-Identifier: Apache-2.0
#include "device/selection_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/testing/coded_cases.h"
#include "device/testing/host_kernels.h"
#include "kernel/for_each_target.h"
#include "kernel/position_code.h"
#include "kernel/select.h"

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
  std::vector<uint64_t> tiles(tiles_of(values.size()));
  std::vector<float>& rest = in_place ? from : other;
  uint64_t found = 0;
  select_above(on, from.data(), from.size(), threshold, most, positions.data(), kept.data(),
               rest.data(), tiles.data(), &found);
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

std::vector<std::byte> pack_by_text(Launcher& on, const std::vector<uint32_t>& positions) {
  const size_t kept = positions.size(), blocks = position_blocks(kept);
  std::vector<uint64_t> low(blocks), high(blocks), sizes(2);
  std::vector<std::byte> code(blocks + 1);
  plan_positions(on, positions.data(), kept, code.data() + 1, low.data(), high.data(),
                 sizes.data());
  code.resize(1 + blocks + sizes[0] + (sizes[1] + 7) / 8);
  std::vector<uint32_t> words((sizes[1] + 31) / 32);
  write_positions(on, positions.data(), kept, code.data() + 1, low.data(), high.data(), sizes[0],
                  sizes[1], words.data());
  return {code.begin() + 1, code.end()};
}

TEST(SelectionTexts, PackPositionsToTheSameBytes) {
  for (const double density : {1.0, 0.7, 0.1, 0.01, 0.0003})
    for (const size_t kept : {1, 2, 31, 511, 512, 513, 1024, 3000}) {
      SCOPED_TRACE(std::to_string(density) + ", " + std::to_string(kept));
      std::vector<uint32_t> positions;
      uint32_t at = 0;
      for (size_t i = 0; i < kept; ++i) {
        // Layers whose densities differ.
        const double mean = (i / 700 % 2 ? 3 : 1) * (1 / density - 1);
        at += static_cast<uint32_t>(2 * mean * random_unit({.seed = 9}, i)) + (i > 0);
        positions.push_back(at);
      }
      std::vector<std::byte> by_kernel(kernel::max_position_bytes(size_t{at} + 1, kept));
      by_kernel.resize(kernel::pack_positions(positions, by_kernel));
      HostLauncher forward, backward(true);
      ASSERT_EQ(pack_by_text(forward, positions), by_kernel);
      ASSERT_EQ(pack_by_text(backward, positions), by_kernel);
    }
}

}  // namespace
}  // namespace thinwire::device
