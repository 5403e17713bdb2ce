// Packing and unpacking as texts, run on the processor, against kernel/position_code.h.
// SPDX-License-Identifier: Apache-2.0
#include "device/position_kernels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/random.h"
#include "device/testing/host_kernels.h"
#include "kernel/position_code.h"

namespace thinwire::device {
namespace {

using Bytes = std::vector<std::byte>;
using Positions = std::vector<uint32_t>;

// Layers whose densities differ.
Positions make_positions(double density, size_t kept) {
  Positions positions;
  uint32_t at = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double mean = (i / 700 % 2 ? 3 : 1) * (1 / density - 1);
    at += static_cast<uint32_t>(2 * mean * random_unit({.seed = 9}, i)) + (i > 0);
    positions.push_back(at);
  }
  return positions;
}

void for_all_positions(const std::function<void(const Positions&)>& visit) {
  for (const double density : {1.0, 0.7, 0.1, 0.01, 0.0003})
    for (const size_t kept : {1, 2, 31, 511, 512, 513, 1024, 3000}) {
      SCOPED_TRACE(std::to_string(density) + ", " + std::to_string(kept));
      visit(make_positions(density, kept));
    }
}

Bytes pack(const Positions& positions) {
  Bytes code(kernel::max_position_bytes(size_t{positions.back()} + 1, positions.size()));
  code.resize(kernel::pack_positions(positions, code));
  return code;
}

Bytes pack_by_text(Launcher& on, const Positions& positions) {
  const size_t kept = positions.size(), blocks = position_blocks(kept);
  std::vector<uint64_t> low(sum_room(blocks)), high(sum_room(blocks)), sizes(2);
  Bytes code(blocks + 1);
  plan_positions(on, positions.data(), kept, code.data() + 1, low.data(), high.data(),
                 sizes.data());
  code.resize(1 + blocks + sizes[0] + (sizes[1] + 7) / 8);
  std::vector<uint32_t> words((sizes[1] + 31) / 32);
  write_positions(on, positions.data(), kept, code.data() + 1, low.data(), high.data(), sizes[0],
                  sizes[1], words.data());
  return {code.begin() + 1, code.end()};
}

TEST(PositionTexts, PackToTheSameBytes) {
  for_all_positions([](const Positions& positions) {
    HostLauncher forward, backward(true);
    const Bytes by_kernel = pack(positions);
    ASSERT_EQ(pack_by_text(forward, positions), by_kernel);
    ASSERT_EQ(pack_by_text(backward, positions), by_kernel);
  });
}

// The places of a code's blocks, which must be good.
std::vector<kernel::PositionPlace> places_in(const Bytes& code, const Positions& positions) {
  kernel::PositionReader reader(code, size_t{positions.back()} + 1, positions.size());
  std::vector<kernel::PositionPlace> places;
  while (!reader.next().empty()) places.push_back(reader.place());
  EXPECT_TRUE(reader.done());
  return places;
}

// From an odd address, with no byte before or behind that may be read.
Positions unpack_by_text(Launcher& on, const Bytes& code, const Positions& expected) {
  const auto places = places_in(code, expected);
  Bytes shifted(1);
  shifted.insert(shifted.end(), code.begin(), code.end());
  shifted.shrink_to_fit();
  Positions positions(expected.size(), 0xEEEEEEEE);
  unpack_positions(on, shifted.data() + 1, code.size(), expected.size(), places.data(),
                   positions.data());
  return positions;
}

void expect_unpacked(const Bytes& code, const Positions& positions) {
  HostLauncher forward, backward(true);
  ASSERT_EQ(unpack_by_text(forward, code, positions), positions);
  ASSERT_EQ(unpack_by_text(backward, code, positions), positions);
}

TEST(PositionTexts, UnpackWhatTheKernelPacks) {
  for_all_positions(
      [](const Positions& positions) { expect_unpacked(pack(positions), positions); });
  Positions wide;  // gaps near 2^22
  for (uint32_t i = 0; i < 1000; ++i) wide.push_back(i * 4'194'303 + i % 3);
  for (const Positions& positions :
       {wide, Positions{0}, Positions{0xfffffffe}, Positions{0, 0xfffffffe}})
    expect_unpacked(pack(positions), positions);
}

// An encoder is free in its choice of parameters: one bit at a time, with those of a function of
// the block.
Bytes pack_with(const Positions& positions, const std::function<unsigned(size_t)>& parameter_of) {
  Bytes code;
  std::vector<bool> low, high;
  for (size_t i = 0; i < positions.size(); ++i) {
    const unsigned parameter = parameter_of(i / kernel::kPositionBlock);
    if (i % kernel::kPositionBlock == 0) {
      code.push_back(static_cast<std::byte>(parameter));
      low.resize((low.size() + 7) / 8 * 8);
    }
    const uint32_t gap = i == 0 ? positions[0] : positions[i] - positions[i - 1] - 1;
    for (unsigned bit = 0; bit < parameter; ++bit) low.push_back((gap >> bit & 1) != 0);
    high.insert(high.end(), gap >> parameter, false);
    high.push_back(true);
  }
  for (const auto* bits : {&low, &high})
    for (size_t i = 0; i < bits->size(); ++i) {
      if (i % 8 == 0) code.emplace_back();
      if ((*bits)[i]) code.back() |= std::byte{1} << i % 8;
    }
  return code;
}

TEST(PositionTexts, UnpackWithAnyParameters) {
  for (const double density : {1.0, 0.1, 0.002})
    for (const size_t kept : {1, 33, 512, 1300}) {
      const Positions positions = make_positions(density, kept);
      for (const unsigned parameter : {0, 1, 7, 8, 9, 17, 30, 31}) {
        SCOPED_TRACE(std::to_string(density) + ", " + std::to_string(kept) + ", " +
                     std::to_string(parameter));
        expect_unpacked(pack_with(positions, [=](size_t) { return parameter; }), positions);
      }
      const auto varied = [](size_t block) { return static_cast<unsigned>(5 * (block % 3)); };
      expect_unpacked(pack_with(positions, varied), positions);
    }
  // Far more zeros than a warp reads at once, and a position beyond 2^31.
  const Positions far = {7, 100'000, 0x80000005, 0x80000006};
  expect_unpacked(pack_with(far, [](size_t) { return 12u; }), far);
}

}  // namespace
}  // namespace thinwire::device
