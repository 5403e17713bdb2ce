// Memories whose vectors lie on a device: signals, moments, remainders and saved states are the
// processor's.
// SPDX-License-Identifier: Apache-2.0
#include "feedback/memory_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/testing/test_name.h"
#include "device/testing/coded_cases.h"
#include "device/testing/fake_device.h"

namespace thinwire {
namespace {

using device::DeviceFloats;
using device::DeviceWork;
using testing::FakeDevice;
using Floats = std::vector<float>;

const StreamSpec kStream{.name = "s", .tensors = {{"a", {700}}, {"empty", {0}}, {"b", {9001}}}};

std::vector<uint32_t> bits_of(std::span<const float> values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

// A memory here and its twin on a device.
class Twins {
 public:
  explicit Twins(const std::string& text)
      : work_(std::make_shared<DeviceWork>(std::make_shared<FakeDevice>(7))),
        here_(make_feedback(text, kStream).value()),
        gradient_there_(work_, kStream.count()) {
    const auto [entry, options] = find_feedback(text).value();
    there_ = entry->on_device(options, kStream, work_);
  }

  void set_momentum(const std::vector<Momentum>& of_tensors) {
    here_->set_momentum(of_tensors);
    there_->set_momentum(of_tensors);
  }

  // What an encoder leaves: nothing at every seventh place.
  void step(uint64_t number, bool counts, bool by_positions) {
    const Call call{.step = number, .ranks = 3};
    const Floats gradient =
        device::make_values(device::Values::kHeavyTail, kStream.count(), 10 + number);
    work_->send(gradient_there_.values().data(), std::as_bytes(std::span(gradient)));
    const Signal here = here_->prepare(gradient, call);
    const Signal there = there_->prepare(gradient_there_.values(), call);
    EXPECT_EQ(bits_of(fetch(there.values)), bits_of(here.values));
    ASSERT_EQ(there.fresh.size(), here.fresh.size());
    EXPECT_EQ(bits_of(fetch(there.fresh)), bits_of(here.fresh));
    EXPECT_EQ(there.moments->abs_sum, here.moments->abs_sum);
    EXPECT_EQ(there.moments->square_sum, here.moments->square_sum);
    EXPECT_EQ(there.moments->abs_max, here.moments->abs_max);
    ASSERT_EQ(there_->rest().size(), here_->rest().size());
    leave(here.values);
    const auto settle = [&](Feedback& memory, std::span<const float> of) {
      if (by_positions && memory.most_positions() > 0)
        memory.sent_at(of, positions_);
      else
        memory.sent(of, 0, of.size());
    };
    settle(*here_, gradient);
    settle(*there_, gradient_there_.values());
    for (Feedback* memory : {here_.get(), there_.get()}) {
      if (counts)
        memory->commit();
      else
        memory->rollback();
    }
  }

  void compare_states() {
    const StateArrays here = here_->save(), there = there_->save();
    ASSERT_EQ(there.size(), here.size());
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_EQ(there[i].name, here[i].name);
      EXPECT_EQ(there[i].data, here[i].data);
      EXPECT_EQ(there[i].on_resize, here[i].on_resize);
    }
    EXPECT_EQ(there_->owed_squares(), here_->owed_squares());
  }

  // Each goes on from what the other saved.
  void swap_states() {
    const StateArrays here = here_->save(), there = there_->save();
    here_->load(there).or_throw();
    there_->load(here).or_throw();
    StateArrays short_one = here;
    if (short_one.empty()) return;
    short_one[0].data.resize(4);
    EXPECT_FALSE(there_->load(short_one));
  }

 private:
  Floats fetch(std::span<const float> from) {
    Floats values(from.size());
    if (!values.empty()) work_->fetch(std::as_writable_bytes(std::span(values)), from.data());
    return values;
  }

  void leave(std::span<const float> signal) {
    if (here_->rest().empty()) return;
    Floats left(signal.begin(), signal.end());
    positions_.clear();
    for (size_t i = 3; i < left.size(); i += 7) {
      left[i] = 0;
      positions_.push_back(static_cast<uint32_t>(i));
    }
    std::copy(left.begin(), left.end(), here_->rest().begin());
    work_->send(there_->rest().data(), std::as_bytes(std::span(left)));
    work_->await();
  }

  SharedWork work_;
  std::unique_ptr<Feedback> here_, there_;
  DeviceFloats gradient_there_;
  std::vector<uint32_t> positions_;
};

class MemoryPlaces : public ::testing::TestWithParam<const char*> {};

TEST_P(MemoryPlaces, AMemoryOnADeviceIsTheProcessors) {
  if (!testing::kKernelsRun) GTEST_SKIP() << "kernels do not run here";
  Twins twins(GetParam());
  for (uint64_t step = 0; step < 6; ++step) {
    SCOPED_TRACE(step);
    if (step == 3)  // of which two ranges have a rule of their own
      twins.set_momentum({{.momentum = 0.5},
                          {.momentum = 0.7},
                          {.momentum = 0.8, .dampening = 0.1, .nesterov = true}});
    twins.step(step, step != 2, step % 2 == 0);
    twins.compare_states();
    if (step == 4) twins.swap_states();
  }
}

INSTANTIATE_TEST_SUITE_P(Memories, MemoryPlaces,
                         ::testing::Values("none", "residual", "residual:beta=0.9,gamma=0.5",
                                           "momentum:beta=0.8", "lowpass:beta=0.3", "velocity",
                                           "velocity:nesterov=true,dampening=0.1", "dgc",
                                           "dgc:clip=0.5,nesterov=true", "dgc:mask=false", "ahead",
                                           "ahead:nesterov=true"),
                         [](const auto& row) { return test_name(row.param); });

// Of several memories on one device, whose queue holds the passes of one while the next takes the
// memory of its signal.
TEST(MemoryPlace, SignalsOfADeviceTakeTurns) {
  if (!testing::kKernelsRun) GTEST_SKIP() << "kernels do not run here";
  const auto work = std::make_shared<DeviceWork>(std::make_shared<FakeDevice>(7));
  const auto [entry, options] = find_feedback("ahead").value();
  struct Pair {
    StreamSpec stream;
    std::unique_ptr<Feedback> here, there;
    std::unique_ptr<DeviceFloats> gradient;
    const float* signal;
  };
  std::vector<Pair> pairs;
  for (const size_t count : {9000, 700, 20000}) {
    const StreamSpec stream = single_tensor({.name = "s", .shape = {count}});
    pairs.push_back({stream, make_feedback("ahead", stream).value(),
                     entry->on_device(options, stream, work),
                     std::make_unique<DeviceFloats>(work, count), nullptr});
  }
  for (uint64_t number = 0; number < 4; ++number) {
    for (Pair& pair : pairs) {
      const Floats gradient =
          device::make_values(device::Values::kHeavyTail, pair.stream.count(), number);
      work->send(pair.gradient->values().data(), std::as_bytes(std::span(gradient)));
      const Signal there = pair.there->prepare(pair.gradient->values(), {.step = number});
      pair.signal = there.values.data();
      Floats rest(gradient.size());
      work->fetch(std::as_writable_bytes(std::span(rest)), there.values.data());
      for (size_t i = number; i < rest.size(); i += 3) rest[i] = 0;
      work->send(pair.there->rest().data(), std::as_bytes(std::span(rest)));
      pair.there->sent(pair.gradient->values(), 0, gradient.size());
      pair.there->commit();

      pair.here->prepare(gradient, {.step = number});
      std::copy(rest.begin(), rest.end(), pair.here->rest().begin());
      pair.here->sent(gradient, 0, gradient.size());
      pair.here->commit();
    }
    if (number > 0) {  // the longest was asked for
      EXPECT_EQ(pairs[0].signal, pairs[1].signal);
      EXPECT_EQ(pairs[1].signal, pairs[2].signal);
    }
  }
  for (const Pair& pair : pairs) {
    const StateArrays here = pair.here->save(), there = pair.there->save();
    ASSERT_EQ(there.size(), here.size());
    for (size_t i = 0; i < here.size(); ++i) EXPECT_EQ(there[i].data, here[i].data);
  }
}

TEST(MemoryPlace, TheMemoriesThatADeviceHas) {
  std::vector<std::string> there;
  for (const FeedbackEntry* entry : list_feedbacks())
    if (entry->on_device != nullptr) there.emplace_back(entry->name);
  EXPECT_THAT(there, ::testing::UnorderedElementsAre("none", "residual", "momentum", "lowpass",
                                                     "velocity", "dgc", "ahead"));
}

}  // namespace
}  // namespace thinwire
