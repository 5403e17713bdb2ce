// Tests of CodedStream against plain calls: whole, in parts, with tensors in several places.
// SPDX-License-Identifier: Apache-2.0
#include "stream/coded_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace thinwire {
namespace {

using Values = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr size_t kCount = 300;

StreamSpec spec() { return single_tensor({.name = "w", .shape = {kCount}}); }

StreamCodec codec(const std::string& text) {
  NamedCodec named = std::move(make_codec(text).value());
  return {.codec = std::move(named.codec), .text = named.canonical};
}

Values gradient(int step) {
  Values values(kCount);
  for (size_t i = 0; i < kCount; ++i)
    values[i] = static_cast<float>((i * 37 + static_cast<size_t>(step) * 11) % 101) - 50.0f;
  return values;
}

Call call_of(int step) { return {.seed = 1, .step = static_cast<uint64_t>(step)}; }

Bytes payload_of(CodedStream& stream, const Signal& signal, int step) {
  Bytes out(stream.codec().max_encoded_size(stream.spec()));
  out.resize(stream.encode(stream.encoder(), signal, 0, call_of(step), out).size);
  return out;
}

Bytes whole_step(CodedStream& stream, int step) {
  const Values values = gradient(step);
  return payload_of(stream, stream.form(values, call_of(step)), step);
}

bool same_state(const Stateful& a, const Stateful& b) {
  const StateArrays x = a.save(), y = b.save();
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].name != y[i].name || x[i].data != y[i].data) return false;
  return true;
}

TEST(CodedStream, IsMemoryAndEncoderInTurn) {
  CodedStream stream(spec(), codec("topk:density=0.1"), "residual");
  const StreamCodec plain = codec("topk:density=0.1");
  const auto memory = make_feedback("residual", spec()).value();
  const auto encoder = plain.codec->make_encoder(spec());
  for (int step = 0; step < 4; ++step) {
    const Values values = gradient(step);
    const Signal signal = memory->prepare(values, call_of(step));
    Bytes expected(plain.codec->max_encoded_size(spec()));
    expected.resize(encoder->encode(signal, call_of(step), expected, memory->rest()).size);
    memory->sent(values, 0, kCount);
    EXPECT_EQ(whole_step(stream, step), expected);
    encoder->commit();
    memory->commit();
    stream.commit();
  }
  EXPECT_TRUE(same_state(stream.memory(), *memory));
}

// Every sparse codec, exact or not, with values that decode to zero: as a memory that looks at all
// values.
TEST(CodedStream, AMaskAtPositionsIsThatOfAPass) {
  std::vector<std::string> texts;
  for (const CodecEntry* entry : list_codecs())
    if (entry->info.sparse)
      for (const OptionInfo& option : entry->options)
        if (option.name == "values")
          for (const std::string_view format : option.choices)
            texts.push_back(std::string(entry->info.name) + ":values=" + std::string(format));
  texts.insert(texts.end(), {"randomk", "topk:density=0.5", "topk:block=100", "scalecom"});
  ASSERT_GE(texts.size(), 20u);
  constexpr size_t kLarge = 5000;
  const StreamSpec large = single_tensor({.name = "w", .shape = {kLarge}});
  for (const std::string& text : texts) {
    SCOPED_TRACE(text);
    CodedStream stream(large, codec(text), "dgc:nesterov=true");
    const StreamCodec plain = codec(text);
    const auto memory = make_feedback("dgc:nesterov=true", large).value();
    const auto encoder = plain.codec->make_encoder(large);
    Bytes expected(plain.codec->max_encoded_size(large)), got(expected.size());
    Values values(kLarge);
    for (int step = 0; step < 5; ++step) {
      for (size_t i = 0; i < kLarge; ++i)  // of all sizes, some 0
        values[i] =
            std::ldexp(static_cast<float>((i * 37 + static_cast<size_t>(step) * 11) % 101) - 50,
                       -static_cast<int>(i * 13 % 29));
      const Signal signal = memory->prepare(values, call_of(step));
      encoder->encode(signal, call_of(step), expected, memory->rest());
      memory->sent(values, 0, kLarge);
      encoder->commit();
      memory->commit();
      stream.encode(stream.encoder(), stream.form(values, call_of(step)), 0, call_of(step), got);
      stream.commit();
      ASSERT_TRUE(same_state(stream.memory(), *memory)) << step;
    }
  }
}

// Notes what it is told of what was sent.
class Witness final : public Feedback {
 public:
  Signal prepare(std::span<const float> gradient, const Call& /*call*/) override {
    rest_.assign(gradient.begin(), gradient.end());
    return {.values = rest_};
  }
  std::span<float> rest() noexcept override { return rest_; }
  void sent(std::span<const float> /*gradient*/, size_t begin, size_t count) override {
    parts.push_back({begin, count});
  }
  void sent_at(std::span<const float> /*gradient*/, std::span<const uint32_t> positions) override {
    lists.emplace_back(positions.begin(), positions.end());
  }
  size_t most_positions() const noexcept override { return most; }
  void commit() override {}
  void rollback() override {}
  StateArrays save() const override { return {}; }
  Status load(const StateArrays& /*arrays*/) override { return Status::ok(); }

  size_t most = 3;
  std::vector<std::pair<size_t, size_t>> parts;
  std::vector<std::vector<uint32_t>> lists;

 private:
  Values rest_;
};

TEST(CodedStream, PositionsAreForMemoriesThatWantThemWhereTheyAreFew) {
  using Parts = std::vector<std::pair<size_t, size_t>>;
  using Lists = std::vector<std::vector<uint32_t>>;
  auto owned = std::make_unique<Witness>();
  Witness& witness = *owned;
  const auto make_stream = [&](const std::string& text) {
    const StreamCodec plain = codec(text);
    return CodedStream(
        spec(), plain, std::make_shared<MemorySlot<Feedback>>("witness", std::move(owned)),
        std::make_shared<MemorySlot<Encoder>>(plain.text, plain.codec->make_encoder(spec())));
  };
  CodedStream stream = make_stream("topk:density=0.01");
  Values values(kCount, 1.0f);
  values[7] = values[70] = values[207] = 2.0f;
  const auto step = [&] { payload_of(stream, stream.form(values, call_of(0)), 0); };
  step();
  values[70] = 3.0f;  // a list is of its own step
  values[6] = 3.0f;
  step();
  EXPECT_EQ(witness.lists, (Lists{{7, 70, 207}, {6, 7, 70}}));
  EXPECT_EQ(witness.parts, Parts{});

  stream.form(values, call_of(0));  // parts have no list, also after a whole step
  stream.keep_nothing(0, 100);
  stream.keep_nothing(100, kCount - 100);
  for (const size_t most : {0, 2}) {
    witness.most = most;
    step();
  }
  witness.most = kCount;
  stream.change_codec(codec("fp32"));
  step();
  EXPECT_EQ(witness.lists.size(), 2u);
  EXPECT_EQ(witness.parts,
            (Parts{{0, 100}, {100, kCount - 100}, {0, kCount}, {0, kCount}, {0, kCount}}));
}

TEST(CodedStream, APlaceOfAWholeSignalIsWhatPartsAndPlacesForm) {
  CodedStream whole(spec(), codec("topk:density=0.1"), "residual");
  CodedStream places(spec(), codec("topk:density=0.1"), "residual");
  CodedStream parts(spec(), codec("fp32"), "residual");
  for (int step = 0; step < 3; ++step) {
    const Values values = gradient(step);
    const std::span<const float> all(values);
    const std::span<const float> of[] = {all.first(100), all.subspan(100, 0), all.subspan(100)};
    EXPECT_EQ(payload_of(places, places.form_joined(of, call_of(step)), step),
              whole_step(whole, step));
    ASSERT_TRUE(parts.begin_parts(values, call_of(step)));
    for (const size_t begin : {200, 0, 100}) {
      const Signal part = parts.part(begin, 100);
      EXPECT_EQ(Values(part.values.begin(), part.values.end()),
                Values(values.begin() + static_cast<long>(begin),
                       values.begin() + static_cast<long>(begin) + 100));
      parts.keep_nothing(begin, 100);
    }
    for (CodedStream* stream : {&whole, &places, &parts}) stream->commit();
  }
  EXPECT_TRUE(same_state(places.memory(), whole.memory()));
}

TEST(CodedStream, AStepThatIsRolledBackNeverHappened) {
  CodedStream stream(spec(), codec("sidco:density=0.1"), "residual");
  CodedStream clean(spec(), codec("sidco:density=0.1"), "residual");
  for (CodedStream* one : {&stream, &clean}) {
    whole_step(*one, 0);
    one->commit();
  }
  whole_step(stream, 1);
  stream.rollback();
  EXPECT_EQ(whole_step(stream, 2), whole_step(clean, 2));
  stream.commit();
  clean.commit();
  EXPECT_TRUE(same_state(stream.memory(), clean.memory()));
  EXPECT_TRUE(same_state(stream.encoder(), clean.encoder()));
}

TEST(CodedStream, SaysWhetherWhatItFormedIsFinite) {
  CodedStream stream(spec(), codec("topk:density=0.1"), "residual");
  Values values = gradient(0);
  values[7] = std::numeric_limits<float>::infinity();
  stream.form(values, call_of(0));
  EXPECT_FALSE(stream.finite());
  stream.rollback();
  ASSERT_TRUE(stream.begin_parts(values, call_of(0)));
  stream.part(100, 200);
  EXPECT_TRUE(stream.finite());
  stream.part(0, 100);
  EXPECT_FALSE(stream.finite());
  stream.rollback();
  const Values good = gradient(0);
  stream.form(good, call_of(0));
  EXPECT_TRUE(stream.finite());
  stream.rollback();
}

TEST(CodedStream, AnotherCodecFindsTheMemoryAsItWas) {
  CodedStream stream(spec(), codec("topk:density=0.01"), "residual");
  whole_step(stream, 0);
  stream.commit();
  const StateArrays owed = stream.memory().save();
  stream.change_codec(codec("fp32"));
  EXPECT_EQ(stream.memory().save().front().data, owed.front().data);
  EXPECT_EQ(stream.codec().info().name, "fp32");
  const Values zeros(kCount);
  const Signal& signal = stream.form(zeros, call_of(1));
  EXPECT_EQ(std::memcmp(signal.values.data(), owed.front().data.data(), kCount * sizeof(float)), 0);
  stream.rollback();
}

// The second lossless step after a lossy one knows that nothing waits, and has no use for what is
// left.
class LosslessStream : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Memories, LosslessStream, ::testing::Values("residual", "ahead", "dgc"));

TEST_P(LosslessStream, AMemoryKnowsWhereTheCodecIsLossless) {
  CodedStream stream(spec(), codec("fp32"), GetParam());
  const Values values = gradient(0);
  const Signal& signal = stream.form(values, call_of(0));
  EXPECT_TRUE(stream.rest(0, kCount).empty());
  EXPECT_EQ(payload_of(stream, signal, 0).size(), kCount * sizeof(float));
  stream.commit();
  EXPECT_TRUE(stream.keeps_rest());
  stream.change_codec(codec("topk:density=0.01"));
  whole_step(stream, 1);
  EXPECT_EQ(stream.rest(0, kCount).size(), kCount);
  stream.commit();
  stream.change_codec(codec("fp32"));
  whole_step(stream, 2);
  EXPECT_EQ(stream.rest(0, kCount).size(), kCount);
  stream.commit();
  whole_step(stream, 3);
  EXPECT_TRUE(stream.rest(0, kCount).empty());
  stream.rollback();
}

// As an exchange leaves a store that fails within a step.
TEST_P(LosslessStream, AStepThatWasLeftOpenNeverHappened) {
  Store store;
  const auto open = [&](const std::string& text) {
    return std::make_unique<CodedStream>(
        spec(), codec(text),
        CodedStream::in_store(open_slot<Feedback>(
            store, "memory", GetParam(),
            [] { return std::move(make_feedback(GetParam(), spec()).value()); })),
        CodedStream::in_store(open_slot<Encoder>(
            store, text, text, [&] { return codec(text).codec->make_encoder(spec()); })));
  };
  const Values values = gradient(0);
  open("fp32")->form(values, call_of(0));
  const auto stream = open("topk:density=0.01");
  EXPECT_TRUE(stream->keeps_rest());
  whole_step(*stream, 1);
  stream->commit();
  EXPECT_GT(stream->memory().owed_squares(), 0);
}

TEST(CodedStream, APartOfALosslessStepIsTheGradientWhereItLies) {
  CodedStream stream(spec(), codec("fp32"), "residual");
  const Values values = gradient(0);
  ASSERT_TRUE(stream.begin_parts(values, call_of(0)));
  EXPECT_EQ(stream.part(100, 50).values.data(), values.data() + 100);
  stream.rollback();
}

TEST(CodedStream, AnEncoderGoesOnWhereOnlyOptionsDiffer) {
  CodedStream stream(spec(), codec("redsync:density=0.1"), "none");
  whole_step(stream, 0);
  stream.commit();
  const StateArrays before = stream.encoder().save();
  stream.change_codec(codec("redsync:density=0.2"));
  const StateArrays after = stream.encoder().save();
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(after.front().data, before.front().data);
  CodedStream fresh(spec(), codec("redsync:density=0.2"), "none");
  EXPECT_NE(fresh.encoder().save().front().data, before.front().data);
}

TEST(CodedStream, LiesInAStoreWhereItIsToldTo) {
  Store store;
  auto& memory = store.open<MemorySlot<Feedback>>("w/feedback", [] {
    return std::make_unique<MemorySlot<Feedback>>("residual",
                                                  make_feedback("residual", spec()).value());
  });
  const StreamCodec topk = codec("topk:density=0.1");
  auto& encoder = store.open<MemorySlot<Encoder>>("w/encoder", [&] {
    return std::make_unique<MemorySlot<Encoder>>(topk.text, topk.codec->make_encoder(spec()));
  });
  {
    CodedStream stream(spec(), topk, CodedStream::in_store(memory), CodedStream::in_store(encoder));
    whole_step(stream, 0);
    stream.commit();
  }
  CodedStream other(spec(), topk, "residual");
  whole_step(other, 0);
  other.commit();
  EXPECT_TRUE(same_state(memory, other.memory()));
}

}  // namespace
}  // namespace thinwire
