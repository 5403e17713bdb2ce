// Tests of what arrives with each boundary memory, against its definition.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/boundary.h"

#include <functional>
#include <map>

#include "kernel/half_float.h"
#include "pipeline/testing/boundary_testing.h"
#include "thinwire/codec.h"
#include "thinwire/frame.h"

namespace thinwire::testing {
namespace {

constexpr size_t kHeads = kFrameHeaderSize + 24;  // bytes of a message before its body
constexpr size_t kKept = 6;                       // of a sample at a density of 0.25

Values part(const Values& values, size_t begin, size_t count) {
  const auto from = values.begin() + static_cast<std::ptrdiff_t>(begin);
  return {from, from + static_cast<std::ptrdiff_t>(count)};
}

// C of each sample, or of all as one.
Values compress(const Values& values, bool per_sample) {
  if (!per_sample)
    return top(values, static_cast<size_t>(std::llround(0.25 * double(values.size()))));
  Values all;
  for (size_t begin = 0; begin < values.size(); begin += kSample) {
    const Values one = top(part(values, begin, kSample), kKept);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// A codec by itself on one stream.
struct Alone {
  Alone(const std::string& name, std::vector<uint64_t> shape)
      : codec(make_codec(name).value().codec),
        stream(single_tensor({.name = "cut", .shape = std::move(shape)})) {}

  Values operator()(const Values& values, const Call& call, size_t& bytes) {
    std::vector<std::byte> payload(codec->max_encoded_size(stream));
    payload.resize(codec->make_encoder(stream)->encode({.values = values}, call, payload, {}).size);
    bytes += 4 + payload.size();
    Values out(values.size());
    codec->make_decoder(stream)->decode_add(payload, 1, out).or_throw();
    return out;
  }

  std::unique_ptr<const Codec> codec;
  StreamSpec stream;
};

TEST(Boundary, EveryCodecInBothForms) {
  const Values x = activations(numbers(0, 8), 0);
  for (const CodecEntry* entry : list_codecs()) {
    const std::string name(entry->info.name);
    SCOPED_TRACE(name);
    size_t bytes = kHeads;
    Alone whole(name, {8, 4, 6});
    const Values want = whole(x, {.seed = 7, .step = 3, .salt = 7}, bytes);
    Pair batch(spec_of(name, "none", false));
    EXPECT_EQ(batch.step(x, {.step = 3}), want);
    EXPECT_EQ(batch.sent.size, bytes);

    Values each;
    bytes = kHeads;
    for (size_t i = 0; i < 8; ++i) {
      const Values one = Alone(name, {4, 6})(part(x, i * kSample, kSample),
                                             {.seed = 7, .step = 3, .salt = i}, bytes);
      each.insert(each.end(), one.begin(), one.end());
    }
    Pair per_sample(spec_of(name, "none"));
    EXPECT_EQ(per_sample.step(x, {.step = 3}), each);
    EXPECT_EQ(per_sample.sent.size, bytes);
  }
}

TEST(Boundary, LosslessIsBitForBit) {
  Values x = activations(numbers(0, 3), 0);
  x[5] = -0.0f;
  Pair pair(spec_of("fp32", "none", false));
  expect_same_bits(pair.step(x, {}), x);
  EXPECT_EQ(pair.sent.size, kHeads + 4 + 4 * x.size());
}

// The reference's arithmetic: B D k / 8 + 8 bytes a batch tensor of min-max codes.
TEST(Boundary, BytesAreThoseOfTheReference) {
  const Values x = activations(numbers(0, 8), 0);
  Pair four_bits(spec_of("uniform:bits=4,block=tensor", "none", false));
  four_bits.step(x, {});
  EXPECT_EQ(four_bits.sent.size, kHeads + 4 + 8 * kSample * 4 / 8 + 8);
}

void expect_feedback(const std::string& memory, bool per_sample,
                     const std::function<Values(const Values& x, Values& e)>& rule) {
  BoundarySpec spec = spec_of("topk:density=0.25", memory, per_sample);
  spec.micro_batches = 2;
  Pair pair(spec);
  std::vector<Values> e(2, Values(8 * kSample));
  for (uint64_t step = 0; step < 6; ++step) {
    for (const size_t m : {1, 0}) {
      const Values x = activations(numbers(10 * step + m, 8), step);
      EXPECT_EQ(pair.cross(x, {.step = step, .micro_batch = m}), rule(x, e[m])) << step;
    }
    pair.commit();
  }
}

TEST(Boundary, ErrorFeedback) {
  for (const bool per_sample : {false, true})
    expect_feedback("ef", per_sample, [&](const Values& x, Values& e) {
      for (size_t i = 0; i < x.size(); ++i) e[i] = x[i] + e[i];
      const Values m = compress(e, per_sample);
      for (size_t i = 0; i < x.size(); ++i) e[i] -= m[i];
      return m;
    });
}

TEST(Boundary, MixedErrorFeedback) {
  expect_feedback("efmixed:density=0.25", true, [](const Values& x, Values& e) {
    Values m;
    for (size_t begin = 0; begin < x.size(); begin += kSample) {
      const Values fresh = top(part(x, begin, kSample), kKept - kKept / 2);
      const Values old = top(part(e, begin, kSample), kKept / 2);
      for (size_t i = 0; i < kSample; ++i) {
        m.push_back(fresh[i] + old[i]);
        e[begin + i] = (fresh[i] != 0 ? 0 : x[begin + i]) + (old[i] != 0 ? 0 : e[begin + i]);
      }
    }
    return m;
  });
}

TEST(Boundary, Ef21) {
  for (const bool per_sample : {false, true})
    expect_feedback("ef21", per_sample, [&](const Values& x, Values& g) {
      Values change(x.size());
      for (size_t i = 0; i < x.size(); ++i) change[i] = x[i] - g[i];
      const Values m = compress(change, per_sample);
      for (size_t i = 0; i < x.size(); ++i) g[i] += m[i];
      return g;
    });
}

// With nothing lost the receiver has x at once; with frozen x the rest shrinks in every step.
TEST(Boundary, Ef21ApproachesWhatStays) {
  const Values x = activations(numbers(0, 8), 0);
  Pair lossless(spec_of("fp32", "ef21"));
  EXPECT_EQ(lossless.step(x, {}), x);
  Pair pair(spec_of("topk:density=0.25", "ef21"));
  double before = 1e9;
  for (uint64_t step = 0; step < 4; ++step) {
    const Values g = pair.step(x, {.step = step});
    double rest = 0;
    for (size_t i = 0; i < x.size(); ++i) rest += std::pow(double{x[i]} - g[i], 2);
    EXPECT_LT(rest, before);
    before = rest;
  }
  EXPECT_LT(before, 1e-10);
}

float as_half(float value) {
  std::vector<uint16_t> bits(1);
  Values back(1);
  kernel::to_half(std::span<const float>(&value, 1), std::span(bits));
  kernel::from_half(std::span<const uint16_t>(bits), std::span(back));
  return back[0];
}

// Samples come in changing company: new ones in full, the others as changes, coded together or not.
void expect_aqsgd(bool per_sample, const std::string& options, float (*stored)(float)) {
  SCOPED_TRACE(options + (per_sample ? ", per sample" : ", batch"));
  Pair pair(spec_of("topk:density=0.25", "aqsgd" + options, per_sample));
  std::map<uint64_t, Values> h;
  for (uint64_t step = 0; step < 30; ++step) {
    const Ids all = random_permutation({.seed = 3, .step = step}, 20);
    const Ids ids(all.begin(), all.begin() + 1 + static_cast<std::ptrdiff_t>(step % 8));
    const Values x = activations(ids, step);
    Values changes, arrives(x.size());
    std::vector<size_t> places;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto known = h.find(ids[i]);
      for (size_t j = 0; j < kSample; ++j)
        if (known != h.end()) changes.push_back(x[i * kSample + j] - known->second[j]);
      if (known != h.end()) places.push_back(i);
    }
    const Values m = compress(changes, per_sample);
    for (size_t i = 0, coded = 0; i < ids.size(); ++i) {
      const bool first = coded == places.size() || places[coded] != i;
      Values& estimate = h.try_emplace(ids[i], Values(kSample)).first->second;
      for (size_t j = 0; j < kSample; ++j) {
        float& value = arrives[i * kSample + j];
        value = first ? x[i * kSample + j] : estimate[j] + m[coded * kSample + j];
        estimate[j] = stored(value);
      }
      coded += first ? 0 : 1;
    }
    expect_same_bits(pair.step(x, {.step = step, .ids = ids}), arrives);
    EXPECT_EQ(pair.sent.full, ids.size() - places.size());
  }
}

TEST(Boundary, AqSgdPerSample) {
  for (const bool per_sample : {false, true}) {
    expect_aqsgd(per_sample, "", [](float x) { return x; });
    expect_aqsgd(per_sample, ":cache=fp16", as_half);
  }
}

TEST(Boundary, AqSgdPerBatch) {
  BoundarySpec spec = spec_of("topk:density=0.25", "aqsgd:key=batch", false);
  spec.micro_batches = 2;
  Pair pair(spec);
  std::map<uint64_t, Values> h;
  for (uint64_t step = 0; step < 12; ++step) {
    const uint64_t batch = step % 3;
    for (const size_t m : {0, 1}) {
      const size_t samples = batch == 2 ? 5 : 8;  // the last batch is smaller
      const Ids ids = numbers(100 * batch + 10 * m, samples);
      const Values x = activations(ids, step);
      const auto [known, first] = h.try_emplace(2 * batch + m, x);
      if (!first) {
        Values change(x.size());
        for (size_t i = 0; i < x.size(); ++i) change[i] = x[i] - known->second[i];
        const Values sent = compress(change, false);
        for (size_t i = 0; i < x.size(); ++i) known->second[i] += sent[i];
      }
      expect_same_bits(pair.cross(x, {.step = step, .micro_batch = m, .ids = ids, .batch = batch}),
                       known->second);
      EXPECT_EQ(pair.sent.full, first ? samples : 0);
    }
    pair.commit();
  }
}

// Frozen weights: the change shrinks to the precision of the cache.
TEST(Boundary, AqSgdShrinksToThePrecisionOfItsCache) {
  const Ids ids = numbers(0, 8);
  const Values x = activations(ids, 0);
  const auto error = [&](const std::string& memory) {
    Pair pair(spec_of("int8", memory));
    Values arrived;
    for (uint64_t step = 0; step < 4; ++step) arrived = pair.step(x, {.step = step, .ids = ids});
    float most = 0;
    for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(arrived[i] - x[i]));
    return most;
  };
  EXPECT_EQ(error("aqsgd"), 0);
  EXPECT_LT(error("aqsgd:cache=fp16"), 1e-4);
  EXPECT_LT(error("aqsgd:cache=bf16,first=bf16"), 1e-3);
}

TEST(Boundary, FirstVisitsTakeThePrecisionAsked) {
  const Ids ids = numbers(0, 8);
  const Values x = activations(ids, 0);
  Pair pair(spec_of("int4", "aqsgd:first=fp16"));
  const Values arrived = pair.step(x, {.ids = ids});
  EXPECT_EQ(pair.sent.size, kHeads + 2 * x.size());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(arrived[i], as_half(x[i]));
}

// Ends do what the row of their memory says: those of whole batches take no fewer samples, and
// those by id take no sample without its id.
TEST(Boundary, RowsSayWhatMemoriesNeed) {
  const Ids ids = numbers(0, 8);
  const Values x = activations(ids, 0);
  const auto refuses = [&](const std::string& memory, size_t samples, bool with_ids) {
    Pair pair(spec_of("topk:density=0.25", memory));
    const auto given = std::span(ids).first(with_ids ? samples : 0);
    try {
      pair.send(part(x, 0, samples * kSample), {.ids = given});
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kContract);
      return true;
    }
  };
  for (const BoundaryMemory& row : list_boundary_memories()) {
    const std::string name(row.name);
    const BoundaryMemory& found = *find_boundary_memory(name).value().entry;
    EXPECT_EQ(found.name, name);
    EXPECT_FALSE(refuses(name, 8, true)) << name;
    EXPECT_EQ(refuses(name, 5, true), found.whole_batches) << name;
    EXPECT_EQ(found.whole_batches, name.starts_with("ef")) << name;  // one vector for all samples
    EXPECT_EQ(refuses(name, 8, false), found.by_id) << name;
  }
  const auto batches = [](const char* text) {
    const NamedBoundaryMemory found = find_boundary_memory(text).value();
    return found.entry->fixed_batches(found.options);
  };
  EXPECT_TRUE(batches("aqsgd:cache=fp16,key=batch"));
  EXPECT_FALSE(batches("aqsgd"));
  EXPECT_EQ(find_boundary_memory("efx").status().message(),
            "unknown memory of a boundary 'efx'; known: none, ef, efmixed, ef21, aqsgd; did you "
            "mean 'ef'?");
}

TEST(Boundary, BadSettingsAreNamed) {
  const auto code_of = [](const BoundarySpec& spec) {
    const ErrorCode code = make_boundary_receiver(spec).status().code();
    EXPECT_EQ(make_boundary_sender(spec).status().code(), code);
    return code;
  };
  EXPECT_EQ(code_of(spec_of("topq", "none")), ErrorCode::kUnknownName);
  EXPECT_EQ(code_of(spec_of("topk", "nonesuch")), ErrorCode::kUnknownName);
  EXPECT_EQ(code_of(spec_of("topk", "aqsgd:cache=fp8")), ErrorCode::kBadOption);
  EXPECT_EQ(code_of(spec_of("topk", "ef:key=batch")), ErrorCode::kUnknownName);
  BoundarySpec spec = spec_of("topk", "none");
  spec.samples = 0;
  EXPECT_EQ(code_of(spec), ErrorCode::kBadOption);
  spec = spec_of("topk:density=warmup(0.1;4)", "none");
  EXPECT_EQ(code_of(spec), ErrorCode::kOk);
  spec.steps_per_epoch = 0;
  EXPECT_EQ(code_of(spec), ErrorCode::kBadOption);
  spec = spec_of("topk", "none");
  spec.samples = size_t{1} << 40;
  EXPECT_EQ(code_of(spec), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace thinwire::testing
