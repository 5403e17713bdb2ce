// dgc: what reaches a threshold taken from a sample, re-selected when far too much does [Lin et
// al., ICLR 2018, section on hierarchical selection].
//
//   k = density x count           j = density x sample size, rounded
//   t = the j-th largest magnitude of the sample
//   sent: |v_i| >= t and v_i != 0; if these are more than excess x k, the k largest of them
//
// Momentum correction, factor masking and local clipping belong to the memory, the warm-up of the
// density to the schedule: this is the selection alone, and v is what it is given.
//
// The sample has at least 32 / density values, so that j >= 32 and the number kept is k with a
// standard deviation of at most 18 %; a vector shorter than that needs no sample, and exactly k are
// kept. (A sample that yields one value only keeps 0.56 to 0.75 k on average.) Every step and rank
// samples other places.
//
// The paper compares with >, which drops the threshold itself: where the sample holds the largest
// value and j is 1, nothing would ever be sent. Public implementations differ from the paper
// besides: the authors' lowers and raises the threshold up to ten times, then cuts the message to
// its first k positions, which are not the largest; others take k instead of j from the sample,
// about 100 times too many, compare signed values, or send a whole vector that is mostly zeros.
// Here zeros are never sent, and what is sent is larger than all that is not.
//
// Payload: codec/sparse_payload.h.
//
// Encoding reads the sample, and the values once.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "codec/builtin.h"
#include "codec/device_sparse.h"
#include "codec/sparse_codec.h"
#include "core/check.h"
#include "core/random.h"
#include "device/selection_kernels.h"
#include "kernel/value_sample.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{
    .name = "dgc",
    .id = 7,
    .summary = "what reaches a sampled threshold, re-selected if far too much",
    .paper = "Deep Gradient Compression, ICLR 2018, arXiv:1712.01887",
    .sparse = true,
    .global_threshold = true};

constexpr double kFewestRank = 32;  // of the threshold in its sample

std::vector<OptionInfo> options_table() {
  return {density_option(),
          {.name = "sample",
           .type = OptionType::kNumber,
           .fallback = "0.01",
           .min = 1e-4,
           .max = 1,
           .unit = "fraction",
           .help = "values looked at for the threshold, but at least 32 / density"},
          {.name = "excess",
           .type = OptionType::kNumber,
           .fallback = "1.3",
           .min = 1,
           .max = 100,
           .unit = "targets",
           .help = "above so many the largest are selected among those that passed"},
          value_format_option()};
}

struct Method {
  explicit Method(const Options& options)
      : density(options.number("density")),
        share(options.number("sample")),
        excess(options.number("excess")) {}

  size_t target(size_t count) const noexcept { return kept_target(density, count); }
  size_t most(size_t count) const noexcept { return kept_limit(excess, target(count), count); }

  // 0: all values are looked at.
  size_t sample_size(size_t count) const noexcept {
    if (target(count) == count) return 0;
    const double wanted = std::max(share * static_cast<double>(count), kFewestRank / density);
    return wanted >= static_cast<double>(count) ? 0 : static_cast<size_t>(wanted);
  }

  double density;
  double share;
  double excess;
};

// Where this step's sample lies.
uint32_t sample_phase(const Call& call) {
  const RandomKey key{.seed = call.seed,
                      .use = RandomUse::kCodec,
                      .step = call.step,
                      .stream = static_cast<uint32_t>(call.salt)};
  return random_word(key, call.offset);
}

class DgcEncoder final : public Encoder {
 public:
  DgcEncoder(const Method& method, size_t count, ValueFormat format)
      : count_(count),
        target_(method.target(count)),
        most_(method.most(count)),
        format_(format),
        sample_(method.sample_size(count)),
        rank_(kept_target(method.density, sample_.size())) {}

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    THINWIRE_CHECK(values.size() == count_, "dgc: values are not as many as the stream has");
    if (sample_.empty()) {
      if (count_ > 0) list_.select(values, 0.0f, target_, rest);
    } else {
      list_.select(values, just_below(threshold(values, call)), most_ + 1, rest);
      if (list_.size() > most_) list_.keep_largest(target_, rest);
    }
    const size_t kept = list_.size();
    return {.size = write_list(list_, format_, out, rest),
            .kept = kept,
            .target = target_,
            .positions = list_.positions()};
  }

 private:
  float threshold(std::span<const float> values, const Call& call) {
    kernel::sample_values(values, sample_phase(call), sample_);
    list_.select(sample_, 0.0f, rank_, {});
    return list_.size() < rank_ ? 0.0f : list_.keep_largest(rank_, {});
  }

  size_t count_;
  size_t target_;
  size_t most_;
  ValueFormat format_;
  std::vector<float> sample_;
  size_t rank_;  // j
  ExceedanceList list_;
};

class DgcDeviceEncoder final : public DeviceSparseEncoder {
 public:
  DgcDeviceEncoder(SharedWork work, const Method& method, size_t count, ValueFormat format)
      : DeviceSparseEncoder(std::move(work), format, count, method.target(count)),
        target_(method.target(count)),
        most_(method.most(count)),
        sample_(method.sample_size(count)),
        rank_(kept_target(method.density, sample_)) {}

 private:
  Keeping keeping(const Signal& signal, const Call& call) override {
    if (sample_ == 0) return {.threshold = 0, .most = target_, .keep = target_};
    auto* const sample = work().room<float>(sample_);
    device::sample_values(work().launcher(), signal.values.data(), signal.values.size(),
                          sample_phase(call), sample, sample_);
    const float least = device_kth_magnitude(work(), {sample, sample_}, rank_);
    return {.threshold = just_below(least), .most = most_, .keep = target_};
  }

  size_t target_;
  size_t most_;
  size_t sample_;  // values; 0: none is taken
  size_t rank_;    // j
};

std::unique_ptr<Codec> make_codec_of(const Options& options) {
  return std::make_unique<MethodCodec<Method, DgcEncoder>>(kInfo, options, value_format(options));
}

std::unique_ptr<Codec> make_on_device(const Options& options, const SharedWork& work) {
  return make_sparse_device_codec(
      make_codec_of(options), work,
      [=, method = Method(options), format = value_format(options)](size_t count) {
        return std::make_unique<DgcDeviceEncoder>(work, method, count, format);
      });
}

}  // namespace

const CodecEntry& dgc_entry() {
  static const CodecEntry entry{.info = kInfo,
                                .options = options_table(),
                                .make = make_codec_of,
                                .on_device = make_on_device};
  return entry;
}

}  // namespace thinwire
