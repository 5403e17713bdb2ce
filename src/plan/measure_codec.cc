// measure_codec: times the exchange of a single rank, whose steps encode and decode as any rank's
// do.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "core/random.h"
#include "exchange/methods/method.h"
#include "exchange/terms/terms.h"
#include "thinwire/step_plan.h"
#include "thinwire/store.h"
#include "thinwire/threads.h"

namespace thinwire {
namespace {

// Long enough that neither caches nor what a frame costs matter, short enough for a quarter of a
// second.
constexpr uint64_t kSide = 1024;
constexpr size_t kSmallStreams = 64;
constexpr uint64_t kSmallSide = 32;
constexpr uint64_t kSteps = 7;  // the first ones allocate, and codecs settle

// Two-sided, with tails between those of a Laplace and of a normal law to the third power:
// gradients of trained networks have such tails [SIDCo, section 2.2].
std::vector<float> gradient(size_t count, uint64_t step, uint32_t stream) {
  const RandomKey key{.seed = 1, .use = RandomUse::kTest, .step = step, .stream = stream};
  std::vector<float> values(count);
  for (size_t block = 0; 4 * block < count; ++block) {
    const auto words = random_block(key, block);
    for (size_t i = 0; i < 4 && 4 * block + i < count; ++i) {
      const double unit = (static_cast<double>(words[i] >> 1) + 0.5) * 0x1p-31;
      const double size = 1e-3 * std::pow(-std::log(unit), 1.5);
      values[4 * block + i] = static_cast<float>((words[i] & 1) != 0 ? size : -size);
    }
  }
  return values;
}

// Most methods code chunks that are too short for several threads, and each rank of a machine has a
// core at most.
class OneThread {
 public:
  OneThread() { set_codec_threads(1); }
  ~OneThread() { set_codec_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_ = codec_threads();
};

struct Measured {
  double encode = 0, decode = 0;  // seconds of a step
  double payload = 0;             // bytes
  double held = 0;                // bytes of memories and encoder states
};

double median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(),
                   numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2),
                   numbers.end());
  return numbers[numbers.size() / 2];
}

Measured measure_streams(const std::vector<TensorSpec>& tensors, const ExchangeOptions& options) {
  Measured measured;
  run_local(1, [&](Group& group) {
    Store store;
    const auto exchange = make_exchange(group, store, tensors, options);
    std::vector<double> encode, decode, payload;
    for (uint64_t step = 0; step < kSteps; ++step) {
      std::vector<std::vector<float>> values;
      for (size_t i = 0; i < tensors.size(); ++i)
        values.push_back(gradient(tensors[i].count(), step, static_cast<uint32_t>(i)));
      for (size_t i = tensors.size(); i-- > 0;)
        exchange->start(i, {.data = values[i].data(), .count = values[i].size()});
      const StepReport report = exchange->finish();
      if (step < 2) continue;
      double bytes = 0;
      for (const StreamCounters& stream : report.streams)
        bytes += static_cast<double>(stream.payload_bytes);
      encode.push_back(report.compress_seconds);
      decode.push_back(report.decompress_seconds);
      payload.push_back(bytes);
    }
    measured = {.encode = median(encode), .decode = median(decode), .payload = median(payload)};
    measured.held = static_cast<double>(store.held_bytes());
  });
  return measured;
}

}  // namespace

CodecCost measure_codec(const ExchangeOptions& given) {
  const OneThread alone;
  const Terms terms = resolve_terms(given, given.first_step).value();
  ExchangeOptions options{.codec = terms.codec_text, .feedback = terms.feedback};
  options.grouping = terms.grouping;
  const Agreed agreed = terms.codec->info().agreed;
  const bool whole = agreed == Agreed::kNothing || agreed == Agreed::kScale;
  // Each of the others can be gathered, too, which would leave its rounds out.
  options.method = whole ? "gather" : "auto";
  options.norms = given.norms;

  const Measured large = measure_streams(
      {{.name = "w", .shape = {kSide, kSide}, .kind = TensorKind::kLinear}}, options);
  std::vector<TensorSpec> tensors;
  for (size_t i = 0; i < kSmallStreams; ++i)
    tensors.push_back({.name = "w" + std::to_string(i),
                       .shape = {kSmallSide, kSmallSide},
                       .kind = TensorKind::kLinear});
  options.grouping = Grouping::kTensor;
  const Measured small = measure_streams(tensors, options);

  constexpr double kValues = kSide * kSide;
  constexpr double kSmallValues = kSmallStreams * kSmallSide * kSmallSide;
  CodecCost cost{.encode_seconds_per_value = large.encode / kValues,
                 .decode_seconds_per_value = large.decode / kValues,
                 .seconds_per_frame = 0,
                 .bytes_per_value = large.payload / kValues,
                 .bytes_per_frame = 0,
                 .memory_bytes_per_value = large.held / kValues};
  const double per_value = cost.encode_seconds_per_value + cost.decode_seconds_per_value;
  cost.seconds_per_frame =
      std::max(0.0, small.encode + small.decode - kSmallValues * per_value) / kSmallStreams;
  cost.bytes_per_frame =
      std::max(0.0, small.payload - kSmallValues * cost.bytes_per_value) / kSmallStreams;
  return cost;
}

}  // namespace thinwire
