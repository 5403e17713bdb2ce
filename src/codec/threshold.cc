// threshold: everything from a fixed magnitude up [Sahu et al., NeurIPS 2021: the hard threshold].
//
//   sent: |x_i| >= lambda and x_i != 0
//
// With a residual it sends much when much has happened and little when little has, and over a whole
// training no sparsifier that sends as much leaves less in sum [there]. lambda is in units of the
// gradient: it must be found for each task, and schedules of the learning rate do not change it.
//
// Nothing passes: the payload is its 8 bytes, and the residual grows until something does.
// Everything passes: 33 bits per value, 3 % more than uncompressed; `max_density` bounds that, the
// largest then go first. lambda = 0 sends all that is not zero.
//
// Payload: codec/sparse_payload.h.
//
// Encoding reads the values once.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "codec/builtin.h"
#include "codec/device_sparse.h"
#include "codec/sparse_codec.h"
#include "core/check.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{
    .name = "threshold",
    .id = 8,
    .summary = "everything from a fixed magnitude up",
    .paper = "Sahu et al., NeurIPS 2021, arXiv:2108.00951",
    .sparse = true,
    .global_threshold = true,  // the same for all streams anyway
};

std::vector<OptionInfo> options_table() {
  return {{.name = "threshold",
           .type = OptionType::kNumber,
           .fallback = "0.01",
           .min = 0,
           .max = 1e9,
           .help = "lambda: the least magnitude sent, in units of the gradient"},
          {.name = "max_density",
           .type = OptionType::kNumber,
           .fallback = "1",
           .min = 1e-6,
           .max = 1,
           .unit = "fraction",
           .help = "sends at most so many, the largest"},
          value_format_option()};
}

class ThresholdEncoder final : public Encoder {
 public:
  ThresholdEncoder(float threshold, size_t count, size_t most, ValueFormat format)
      : threshold_(threshold), count_(count), most_(most), format_(format) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    THINWIRE_CHECK(signal.values.size() == count_,
                   "threshold: values are not as many as the stream has");
    if (count_ > 0) list_.select(signal.values, just_below(threshold_), most_, rest);
    const size_t kept = list_.size();
    return {.size = write_list(list_, format_, out, rest),
            .kept = kept,
            .positions = list_.positions()};
  }

 private:
  float threshold_;
  size_t count_;
  size_t most_;
  ValueFormat format_;
  ExceedanceList list_;
};

class ThresholdCodec final : public SparseCodec {
 public:
  explicit ThresholdCodec(const Options& options)
      : SparseCodec(kInfo, value_format(options)),
        threshold_(static_cast<float>(options.number("threshold"))),
        max_density_(options.number("max_density")) {}

 private:
  size_t wanted(size_t /*count*/) const noexcept override { return 0; }
  size_t most_kept(size_t count) const noexcept override {
    return kept_target(max_density_, count);
  }
  std::unique_ptr<Encoder> encoder_of(size_t count) const override {
    return std::make_unique<ThresholdEncoder>(threshold_, count, most_kept(count), format());
  }

  float threshold_;
  double max_density_;
};

class ThresholdDeviceEncoder final : public DeviceSparseEncoder {
 public:
  ThresholdDeviceEncoder(SharedWork work, ValueFormat format, size_t count, float threshold,
                         size_t most)
      : DeviceSparseEncoder(std::move(work), format, count, 0),
        threshold_(threshold),
        most_(most) {}

 private:
  Keeping keeping(const Signal& /*signal*/, const Call& /*call*/) override {
    return {.threshold = just_below(threshold_), .most = most_, .keep = most_};
  }

  float threshold_;
  size_t most_;
};

std::unique_ptr<Codec> make_on_device(const Options& options, const SharedWork& work) {
  const auto threshold = static_cast<float>(options.number("threshold"));
  const double most = options.number("max_density");
  const ValueFormat format = value_format(options);
  return make_sparse_device_codec(std::make_unique<ThresholdCodec>(options), work,
                                  [=](size_t count) {
                                    return std::make_unique<ThresholdDeviceEncoder>(
                                        work, format, count, threshold, kept_target(most, count));
                                  });
}

}  // namespace

const CodecEntry& threshold_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = options_table(),
      .make = [](const Options& options) { return std::make_unique<ThresholdCodec>(options); },
      .on_device = make_on_device};
  return entry;
}

}  // namespace thinwire
