// Tests of gradients that are sent at the positions of their activations.
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "pipeline/testing/boundary_testing.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

constexpr size_t kHeads = kFrameHeaderSize + 24;

// A cut: activations one way, gradients the other, and what is noted at each side of it.
struct Cut {
  explicit Cut(bool per_sample, const std::string& backward_codec = "fp32",
               const std::string& memory = "none") {
    BoundarySpec forward = spec_of("topk:density=0.25", memory, per_sample);
    BoundarySpec backward = spec_of(backward_codec, "none", per_sample);
    forward.micro_batches = backward.micro_batches = 3;
    forward.note_positions = backward.at_positions = make_kept_positions();
    upper = make_boundary_sender(forward).value();
    returned = make_boundary_receiver(backward).value();
    forward.note_positions = backward.at_positions = make_kept_positions();
    lower = make_boundary_receiver(forward).value();
    back = make_boundary_sender(backward).value();
  }

  Values forward(const Values& x, const Visit& visit) {
    std::vector<std::byte> bytes(upper->max_message_size());
    bytes.resize(upper->encode(x, visit, bytes).size);
    Values arrived(x.size());
    lower->decode(bytes, visit, arrived).or_throw();
    return arrived;
  }
  Values backward(const Values& y, const Visit& visit) {
    message.resize(back->max_message_size());
    message.resize(back->encode(y, visit, message).size);
    Values arrived(y.size(), 9.0f);
    returned->decode(message, visit, arrived).or_throw();
    return arrived;
  }

  std::unique_ptr<BoundarySender> upper, back;
  std::unique_ptr<BoundaryReceiver> lower, returned;
  std::vector<std::byte> message;
};

TEST(PositionedEnds, GradientsArriveWhereActivationsDid) {
  for (const bool per_sample : {false, true})
    for (const char* memory : {"none", "ef"}) {
      Cut cut(per_sample, "fp32", memory);
      for (uint64_t step = 0; step < 3; ++step) {
        std::vector<Values> arrived;
        for (size_t m = 0; m < 3; ++m)
          arrived.push_back(
              cut.forward(activations(numbers(10 * m, 8), step), {.step = step, .micro_batch = m}));
        for (size_t m = 0; m < 3; ++m) {
          const Values y = activations(numbers(99, 8), step + m);
          Values want(y.size());
          for (size_t i = 0; i < y.size(); ++i) want[i] = arrived[m][i] != 0 ? y[i] : 0.0f;
          EXPECT_EQ(cut.backward(y, {.step = step, .micro_batch = m}), want);
          EXPECT_EQ(cut.message.size(), kHeads + 4 + 4 * 8 * kSample / 4) << "values, no positions";
        }
        for (BoundaryEnd* end :
             {static_cast<BoundaryEnd*>(cut.upper.get()),
              static_cast<BoundaryEnd*>(cut.lower.get()), static_cast<BoundaryEnd*>(cut.back.get()),
              static_cast<BoundaryEnd*>(cut.returned.get())})
          end->commit();
      }
    }
}

TEST(PositionedEnds, SixteenBitsHalveTheBytes) {
  Cut cut(true, "bf16");
  cut.forward(activations(numbers(0, 8), 0), {});
  cut.backward(Values(8 * kSample, 0.3f), {});
  EXPECT_EQ(cut.message.size(), kHeads + 4 + 2 * 8 * kSample / 4);
}

TEST(PositionedEnds, FewerThanAskedAndNone) {
  Cut cut(false);
  Values x(8 * kSample);
  x[17] = 2;
  cut.forward(x, {});
  Values want(x.size());
  want[17] = 5;
  EXPECT_EQ(cut.backward(Values(x.size(), 5), {}), want);
  cut.forward(Values(x.size()), {.micro_batch = 1});
  EXPECT_EQ(cut.backward(Values(x.size(), 5), {.micro_batch = 1}), Values(x.size()));
}

TEST(PositionedEnds, WhatWasNotNotedIsAnError) {
  Cut cut(true);
  const Values x = activations(numbers(0, 8), 0);
  EXPECT_THROW(cut.backward(x, {}), Error);
  cut.forward(x, {});
  EXPECT_THROW(cut.backward(x, {.step = 1}), Error);
  EXPECT_THROW(cut.backward(x, {.micro_batch = 1}), Error);
  EXPECT_THROW(cut.backward(Values(7 * kSample), {}), Error);
  EXPECT_NO_THROW(cut.backward(x, {}));
}

// A step whose activations are not finite has no positions: NaN comes back, the next step is as
// ever.
TEST(PositionedEnds, WhatIsNotFiniteHasNoPositionsAndComesBackAsSuch) {
  for (const bool per_sample : {false, true}) {
    Cut cut(per_sample);
    const Values x = activations(numbers(0, 8), 0);
    const Values nan(x.size(), std::numeric_limits<float>::quiet_NaN());
    Values arrived(x.size());
    std::vector<std::byte> bytes(cut.upper->max_message_size());
    Sent sent = cut.upper->encode(nan, {}, bytes);
    EXPECT_FALSE(sent.finite);
    EXPECT_EQ(cut.lower->decode(std::span(bytes).first(sent.size), {}, arrived).code(),
              ErrorCode::kNonFinite);
    bytes.resize(cut.back->max_message_size());
    EXPECT_THROW(cut.back->encode(x, {}, bytes), Error);  // a finite one has nowhere to be
    sent = cut.back->encode(nan, {}, bytes);
    EXPECT_FALSE(sent.finite);
    EXPECT_EQ(cut.returned->decode(std::span(bytes).first(sent.size), {}, arrived).code(),
              ErrorCode::kNonFinite);
    for (BoundaryEnd* end :
         {static_cast<BoundaryEnd*>(cut.upper.get()), static_cast<BoundaryEnd*>(cut.lower.get()),
          static_cast<BoundaryEnd*>(cut.back.get()), static_cast<BoundaryEnd*>(cut.returned.get())})
      end->rollback();
    cut.forward(x, {});
    EXPECT_NO_THROW(cut.backward(x, {}));
  }
}

TEST(PositionedEnds, HostileBytes) {
  Cut cut(true);
  const Values x = activations(numbers(0, 8), 0);
  cut.forward(x, {});
  const Values want = cut.backward(x, {});
  const std::vector<std::byte> good = cut.message;
  const FrameHeader header = read_frame(good).value().header;
  Values out(x.size());
  cut.returned->rollback();
  for (size_t size = 0; size < good.size(); ++size) {
    std::vector<std::byte> cut_short(good.begin(), good.begin() + std::ptrdiff_t(size));
    EXPECT_FALSE(cut.returned->decode(cut_short, {}, out));
    cut.returned->rollback();
    if (size < kFrameHeaderSize) continue;
    FrameHeader shorter = header;
    shorter.payload_size = size - kFrameHeaderSize;
    seal_frame(shorter, cut_short);
    EXPECT_FALSE(cut.returned->decode(cut_short, {}, out));
    EXPECT_THROW(cut.returned->commit(), Error);
    cut.returned->rollback();
  }
  ASSERT_TRUE(cut.returned->decode(good, {}, out).is_ok());
  EXPECT_EQ(out, want);
}

TEST(PositionedEnds, WhatDoesNotGoTogetherIsNamed) {
  BoundarySpec spec = spec_of("int8", "none");
  spec.note_positions = make_kept_positions();
  EXPECT_EQ(make_boundary_sender(spec).status().code(), ErrorCode::kUnsupported);
  spec.codec = "topk";
  spec.memory = "aqsgd";
  EXPECT_EQ(make_boundary_sender(spec).status().code(), ErrorCode::kUnsupported);
  spec.memory = "none";
  std::swap(spec.note_positions, spec.at_positions);
  EXPECT_EQ(make_boundary_receiver(spec).status().code(), ErrorCode::kUnsupported);
  spec.codec = "fp16";
  spec.memory = "ef";
  EXPECT_EQ(make_boundary_receiver(spec).status().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace thinwire::testing
