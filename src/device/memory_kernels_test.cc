// Memories' kernel texts, run on the processor, against the SIMD kernels on every target, bit for
// bit.
// SPDX-License-Identifier: Apache-2.0
#include "device/memory_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "device/testing/coded_cases.h"
#include "device/testing/host_kernels.h"
#include "kernel/ahead_passes.h"
#include "kernel/for_each_target.h"
#include "kernel/vector_moments.h"

namespace thinwire::device {
namespace {

using Floats = std::vector<float>;

// What a pass leaves: vectors and perhaps moments, as bits.
struct Outcome {
  std::vector<std::vector<uint32_t>> vectors;
  uint64_t abs_sum = 0, square_sum = 0;
  uint32_t abs_max = 0;
  bool finite = true;

  bool operator==(const Outcome&) const = default;

  Outcome& add(const Floats& values) {
    auto& bits = vectors.emplace_back(values.size());
    if (!values.empty()) std::memcpy(bits.data(), values.data(), 4 * values.size());
    return *this;
  }
  Outcome& add(const Moments& moments) {
    finite = moments.finite;
    if (!finite) return *this;
    abs_sum = std::bit_cast<uint64_t>(moments.abs_sum);
    square_sum = std::bit_cast<uint64_t>(moments.square_sum);
    abs_max = std::bit_cast<uint32_t>(moments.abs_max);
    return *this;
  }
};

// The inputs of a pass.
struct Input {
  size_t count;
  Floats a, b, c, d;
  kernel::MomentumRule rule;
};

// Runs `simd` on every target and `text` forwards and backwards on inputs of every kind and size.
template <class Simd, class Text>
void compare(const Simd& simd, const Text& text) {
  for (const Values kind :
       {Values::kNormal, Values::kHeavyTail, Values::kZeros, Values::kTiny, Values::kSpike})
    for (const size_t count : kSizes)
      for (const bool nesterov : {false, true}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + ", " + std::to_string(count));
        const Input in{.count = count,
                       .a = make_values(kind, count, 1),
                       .b = make_values(kind, count, 2),
                       .c = make_values(kind, count, 3),
                       .d = make_values(Values::kNormal, count, 4),
                       .rule = {.momentum = 0.9f, .scale = 0.7f, .nesterov = nesterov}};
        HostLauncher forward, backward(true);
        const Outcome by_text = text(forward, in);
        ASSERT_EQ(by_text, text(backward, in));
        kernel::for_each_target([&](std::string_view target) {
          SCOPED_TRACE(target);
          ASSERT_EQ(by_text, simd(in));
        });
      }
}

// What launchers write moments to.
struct Entries {
  explicit Entries(size_t count) : all(moment_entries(count)) {}
  Moments total() const { return moments_of(all[0]); }
  std::vector<ChunkMoments> all;
};

TEST(MemoryTexts, Moments) {
  compare([](const Input& in) { return Outcome().add(kernel::moments(in.a)); },
          [](Launcher& on, const Input& in) {
            Entries entries(in.count);
            moments(on, in.a.data(), in.count, entries.all.data());
            return Outcome().add(entries.total());
          });
}

TEST(MemoryTexts, MomentsOfWhatIsNotFinite) {
  for (const float odd :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Floats values = make_values(Values::kNormal, 20000);
    values[12345] = odd;
    Entries entries(values.size());
    HostLauncher on;
    moments(on, values.data(), values.size(), entries.all.data());
    EXPECT_FALSE(entries.total().finite);
  }
}

// In place, as the residual forms its signal where it lies.
TEST(MemoryTexts, WeightedSumWithMoments) {
  compare(
      [](const Input& in) {
        Floats out = in.a;
        const Moments moments = kernel::weighted_sum_with_moments(0.8f, out, 1.3f, in.b, out);
        return Outcome().add(out).add(moments);
      },
      [](Launcher& on, const Input& in) {
        Floats out = in.a;
        Entries entries(in.count);
        weighted_sum_with_moments(on, 0.8f, out.data(), 1.3f, in.b.data(), out.data(), in.count,
                                  entries.all.data());
        Floats again = in.a;
        weighted_sum(on, 0.8f, again.data(), 1.3f, in.b.data(), again.data(), in.count);
        EXPECT_EQ(out, again);
        return Outcome().add(out).add(entries.total());
      });
}

TEST(MemoryTexts, AddVelocity) {
  compare(
      [](const Input& in) {
        Floats u(in.count), v(in.count);
        const Moments moments = kernel::add_velocity(in.rule, in.a, in.b, in.c, u, v);
        return Outcome().add(u).add(v).add(moments);
      },
      [](Launcher& on, const Input& in) {
        Floats u(in.count), v(in.count);
        Entries entries(in.count);
        add_velocity(on, in.rule, in.a.data(), in.b.data(), in.c.data(), u.data(), v.data(),
                     in.count, entries.all.data());
        return Outcome().add(u).add(v).add(entries.total());
      });
}

// A remainder of which every third value was sent.
Floats some_sent(Floats sum) {
  for (size_t i = 0; i < sum.size(); i += 3) sum[i] = 0;
  return sum;
}

TEST(MemoryTexts, MaskVelocity) {
  compare(
      [](const Input& in) {
        Floats u(in.count), v(in.count);
        kernel::add_velocity(in.rule, in.a, in.b, in.c, u, v);
        kernel::mask_velocity(in.rule, in.a, in.c, some_sent(v), u);
        return Outcome().add(u);
      },
      [](Launcher& on, const Input& in) {
        Floats u(in.count), v(in.count);
        kernel::add_velocity(in.rule, in.a, in.b, in.c, u, v);
        const Floats rest = some_sent(v);
        Floats at = u;
        mask_velocity(on, in.rule, in.a.data(), in.c.data(), rest.data(), u.data(), in.count);
        std::vector<uint32_t> positions;
        for (size_t i = 0; i < in.count; i += 3) positions.push_back(static_cast<uint32_t>(i));
        mask_velocity_at(on, in.rule, positions.data(), positions.size(), in.a.data(), in.c.data(),
                         rest.data(), at.data());
        EXPECT_EQ(u, at);
        return Outcome().add(u);
      });
}

TEST(MemoryTexts, Ahead) {
  compare(
      [](const Input& in) {
        Floats u(in.count), v(in.count), signal(in.count);
        const Moments moments = kernel::form_ahead(in.rule, 9.0f, in.a, in.b, in.c, u, v, signal);
        Outcome outcome;
        outcome.add(u).add(v).add(signal).add(moments);
        kernel::settle_ahead(in.rule, 9.0f, in.a, some_sent(signal), u, v);
        return outcome.add(u).add(v);
      },
      [](Launcher& on, const Input& in) {
        Floats u(in.count), v(in.count), signal(in.count);
        Entries entries(in.count);
        form_ahead(on, in.rule, 9.0f, in.a.data(), in.b.data(), in.c.data(), u.data(), v.data(),
                   signal.data(), in.count, entries.all.data());
        Outcome outcome;
        outcome.add(u).add(v).add(signal).add(entries.total());
        const Floats rest = some_sent(signal);
        settle_ahead(on, in.rule, 9.0f, in.a.data(), rest.data(), u.data(), v.data(), in.count);
        return outcome.add(u).add(v);
      });
}

TEST(MemoryTexts, Estimates) {
  compare(
      [](const Input& in) {
        Floats rest = in.c, total = in.a, values = in.d;
        kernel::advance_estimate(in.a, in.b, rest);
        kernel::add_and_copy(total, values);
        return Outcome().add(rest).add(total).add(values);
      },
      [](Launcher& on, const Input& in) {
        Floats rest = in.c, total = in.a, values = in.d;
        advance_estimate(on, in.a.data(), in.b.data(), rest.data(), in.count);
        add_and_copy(on, total.data(), values.data(), in.count);
        return Outcome().add(rest).add(total).add(values);
      });
}

}  // namespace
}  // namespace thinwire::device
