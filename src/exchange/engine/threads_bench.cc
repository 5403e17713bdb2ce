// Benchmark of codec threads: the same calls on one and on all cores in turn, on 25 M values.
// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <memory>
#include <string>

#include "bench/side_by_side.h"
#include "core/aligned.h"
#include "core/random.h"
#include "thinwire/codec.h"
#include "thinwire/feedback.h"
#include "thinwire/threads.h"

namespace thinwire {
namespace {

using bench::kLarge;

// A rank's work on one gradient: memory, encoding, and adding what another rank sent.
class Step {
 public:
  Step(const std::string& codec, const std::string& memory)
      : codec_(std::move(make_codec(codec).value().codec)),
        stream_(single_tensor({.name = "w", .shape = {kLarge}, .kind = TensorKind::kLinear})),
        encoder_(codec_->make_encoder(stream_)),
        decoder_(codec_->make_decoder(stream_)),
        memory_(make_feedback(memory, stream_).value()),
        gradient_(kLarge),
        sum_(kLarge),
        payload_(codec_->max_encoded_size(stream_)) {
    for (size_t i = 0; i < kLarge; ++i)
      gradient_[i] = i < 1'000'000 ? random_normal({.seed = 1}, i) : gradient_[i - 1'000'000];
  }

  void operator()() {
    const Call call{.step = ++step_};
    const Signal signal = memory_->prepare(gradient_, call);
    const size_t size = encoder_->encode(signal, call, payload_, memory_->rest()).size;
    memory_->sent(gradient_, 0, kLarge);
    decoder_->decode_add(std::span(payload_).first(size), 0.5f, sum_).or_throw();
    memory_->commit();
    encoder_->commit();
  }

 private:
  std::unique_ptr<const Codec> codec_;
  StreamSpec stream_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<const Decoder> decoder_;
  std::unique_ptr<Feedback> memory_;
  AlignedVector<float> gradient_, sum_;
  AlignedVector<std::byte> payload_;
  uint64_t step_ = 0;
};

// `times_one`: seconds on all cores over seconds on one, medians of pairs.
void step_on_all_cores(benchmark::State& state, const std::string& codec,
                       const std::string& memory) {
  Step step(codec, memory);
  std::vector<double> ratios;
  bench::side_by_side(
      state, kLarge,
      [&] {
        set_codec_threads(1);
        ratios.push_back(bench::seconds_of(std::ref(step)));
        set_codec_threads(0);
      },
      [&] {
        const double seconds = bench::seconds_of(std::ref(step));
        ratios.back() = seconds / ratios.back();
      });
  state.counters["threads"] = codec_threads();
  state.counters["times_one"] = bench::median(ratios);
  set_codec_threads(1);
}

const bool kEnrolled = [] {
  for (const auto& [codec, memory] :
       {std::pair{"fp16", "none"}, std::pair{"int8", "residual"}, std::pair{"sign", "residual"},
        std::pair{"qsgd", "none"}, std::pair{"sidco:density=0.01", "residual"}})
    benchmark::RegisterBenchmark(
        (std::string("threads/") + codec).c_str(),
        [=](benchmark::State& state) { step_on_all_cores(state, codec, memory); })
        ->UseManualTime()
        ->Iterations(15)
        ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace thinwire
