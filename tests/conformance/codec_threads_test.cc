// Whatever the number of threads, a codec writes the same bytes and a memory keeps the same values.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "core/random.h"
#include "support/samples.h"
#include "thinwire/codec.h"
#include "thinwire/feedback.h"
#include "thinwire/threads.h"

namespace thinwire {
namespace {

// Enough for several threads, with a part that is no whole block.
constexpr size_t kCount = (size_t{1} << 20) + 777;

std::vector<float> gradient(uint64_t step) {
  std::vector<float> values(kCount);
  for (size_t i = 0; i < kCount; ++i)
    values[i] = random_normal({.seed = 5, .step = step}, i) * (i % 1000 == 0 ? 10.0f : 0.1f);
  return values;
}

struct Trace {
  std::vector<std::byte> bytes;
  std::vector<float> values;

  void add(std::span<const float> more) { values.insert(values.end(), more.begin(), more.end()); }
  void add_moments(const Moments& moments) {
    for (const double sum : {moments.abs_sum, moments.square_sum, double{moments.abs_max}}) {
      const auto raw = std::as_bytes(std::span(&sum, 1));
      bytes.insert(bytes.end(), raw.begin(), raw.end());
    }
  }
  bool operator==(const Trace& other) const {
    return bytes == other.bytes && values.size() == other.values.size() &&
           std::memcmp(values.data(), other.values.data(), values.size() * sizeof(float)) == 0;
  }
};

class Threads : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { set_codec_threads(1); }

  // The same for 1, 2 and 5 threads.
  static void expect_same(const std::function<Trace()>& work) {
    set_codec_threads(1);
    const Trace one = work();
    for (const int threads : {2, 5}) {
      set_codec_threads(threads);
      EXPECT_TRUE(work() == one) << threads << " threads";
    }
  }
};

class CodecThreads : public Threads {};

TEST_P(CodecThreads, GiveTheSameBytesAndValues) {
  const NamedCodec named = make_codec(GetParam()).value();
  const StreamSpec stream = samples::one_tensor(kCount);
  const std::vector<float> x = gradient(0);
  expect_same([&] {
    Trace trace;
    const auto encoder = named.codec->make_encoder(stream);
    trace.bytes.resize(named.codec->max_encoded_size(stream));
    std::vector<float> rest(kCount), out(kCount, 0.5f);
    trace.bytes.resize(encoder->encode({.values = x}, {.seed = 1}, trace.bytes, rest).size);
    named.codec->make_decoder(stream)->decode_add(trace.bytes, 0.25f, out).or_throw();
    trace.add(rest);
    trace.add(out);
    return trace;
  });
}

INSTANTIATE_TEST_SUITE_P(All, CodecThreads, ::testing::ValuesIn(samples::codec_variants()));

class FeedbackThreads : public Threads {};

TEST_P(FeedbackThreads, KeepTheSameValues) {
  const NamedCodec named = make_codec("topk:density=0.01").value();
  const StreamSpec stream = samples::one_tensor(kCount);
  const std::vector<float> steps[] = {gradient(0), gradient(1)};
  expect_same([&] {
    Trace trace;
    const auto memory = make_feedback(GetParam(), stream).value();
    const auto encoder = named.codec->make_encoder(stream);
    std::vector<std::byte> payload(named.codec->max_encoded_size(stream));
    for (const std::vector<float>& step : steps) {
      const Signal signal = memory->prepare(step, {});
      trace.add(signal.values);
      if (signal.moments) trace.add_moments(*signal.moments);
      const Encoded encoded = encoder->encode(signal, {}, payload, memory->rest());
      if (memory->most_positions() > 0)
        memory->sent_at(step, encoded.positions);
      else
        memory->sent(step, 0, kCount);
      memory->commit();
      encoder->commit();
    }
    for (const StateArray& array : memory->save())
      trace.bytes.insert(trace.bytes.end(), array.data.begin(), array.data.end());
    return trace;
  });
}

std::vector<std::string> all_memories() {
  std::vector<std::string> all;
  for (const FeedbackEntry* entry : list_feedbacks()) all.emplace_back(entry->name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, FeedbackThreads, ::testing::ValuesIn(all_memories()));

}  // namespace
}  // namespace thinwire
