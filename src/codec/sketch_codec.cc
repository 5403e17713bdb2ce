// What sketches share: keys, rounds, payloads and what is left.
//
// Without an agreement what is left is values - estimate. Ranks that agree send the mean of their
// sums, and each must keep a remainder such that the mean of remainders is the mean of values minus
// the estimate of what was sent. With c the sums of a rank, m their mean and f what the format
// makes of m, that is values - E(c - m + f) if E, the estimate, is linear; otherwise it is values -
// L(c - m) - E(f) with a linear L.
// SPDX-License-Identifier: Apache-2.0
#include "codec/sketch_codec.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "codec/checked_add.h"
#include "codec/codec_random.h"
#include "codec/sparse_codec.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/checksum.h"
#include "kernel/vector_moments.h"

namespace thinwire {
namespace {

// 2^95 times 2^32 values is a finite float. kSmall carries the largest float there.
constexpr float kLarge = 0x1p95f, kSmall = 0x1p-33f;

// What encoder and decoder know of a stream.
struct Form {
  std::string_view codec;
  std::shared_ptr<const Sketch> sketch;
  ValueFormat format;
  bool shared;

  size_t payload_size() const noexcept {
    return sizeof(uint64_t) + value_bytes(format, sketch->kept());
  }
};

void read_sums(ValueReader& reader, std::span<float> sums) {
  for (size_t begin = 0; begin < sums.size(); begin += kValueBlock)
    reader.read(sums.subspan(begin, std::min(kValueBlock, sums.size() - begin)));
}

class SketchEncoder final : public Encoder {
 public:
  SketchEncoder(Form form, const StreamSpec& stream)
      : form_(std::move(form)),
        stream_(checksum(std::as_bytes(std::span(stream.name)), {})),
        count_(stream.count()),
        own_(form_.sketch->kept()),
        sent_(form_.sketch->kept()) {}

  size_t offer(size_t /*round*/, const Signal& signal, const Call& call,
               std::span<std::byte> out) override {
    form_own(signal, call);
    ByteWriter writer(out);
    for (const float sum : own_) writer.put(sum);
    return writer.written();
  }

  // No mean of sums is beyond the bound.
  Status adopt(size_t /*round*/, std::span<const std::byte> combined) override {
    mean_.resize(own_.size());
    ByteReader reader(combined);
    for (float& sum : mean_) sum = std::clamp(reader.get<float>(), -kMostSent, kMostSent);
    return Status::ok();
  }

  void commit() override { mean_.clear(); }
  void rollback() override { mean_.clear(); }

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    THINWIRE_CHECK(signal.values.size() == count_,
                   std::string(form_.codec) + ": values are not as many as the stream has");
    const bool agreed = !mean_.empty();
    if (!agreed) form_own(signal, call);
    const uint64_t key = key_of(call);
    const auto bytes = out.subspan(sizeof key, value_bytes(form_.format, own_.size()));
    ByteWriter(out).put(key);
    write(agreed ? mean_ : own_, bytes);
    if (!rest.empty()) {
      ValueReader reader(form_.format, bytes);
      read_sums(reader, sent_);
      if (rest.data() != signal.values.data())
        std::copy(signal.values.begin(), signal.values.end(), rest.begin());
      agreed ? subtract_agreed(key, call.share(), rest) : subtract(key, sent_, 1, rest);
    }
    return {.size = form_.payload_size(), .kept = own_.size(), .target = own_.size()};
  }

 private:
  uint64_t key_of(const Call& call) const { return payload_key(call, stream_, form_.shared); }

  void form_own(const Signal& signal, const Call& call) {
    const float largest =
        (signal.moments ? *signal.moments : kernel::moments(signal.values)).abs_max;
    form_.sketch->form(key_of(call), signal.values, largest, own_, scratch_);
  }

  void write(std::span<const float> sums, std::span<std::byte> bytes) {
    const auto at = [&](size_t i) { return sums[i]; };
    ValueWriter writer(form_.format, sent_mean(form_.format, sums.size(), at), bytes);
    for (size_t begin = 0; begin < sums.size(); begin += kValueBlock)
      writer.write(sums.subspan(begin, std::min(kValueBlock, sums.size() - begin)), {});
  }

  void subtract(uint64_t key, std::span<const float> sums, float times, std::span<float> rest) {
    form_.sketch->add_estimate(key, sums, -times, rest, scratch_);
  }

  // `share` is Call::share.
  void subtract_agreed(uint64_t key, float share, std::span<float> rest) {
    if (form_.sketch->linear()) {
      for (size_t i = 0; i < own_.size(); ++i) own_[i] += share * (sent_[i] - mean_[i]);
      return subtract(key, own_, 1, rest);
    }
    for (size_t i = 0; i < own_.size(); ++i) own_[i] -= share * mean_[i];
    form_.sketch->add_linear(key, own_, -1, rest, scratch_);
    subtract(key, sent_, share, rest);
  }

  const Form form_;
  const uint64_t stream_;  // checksum of its name: streams draw different signs
  const size_t count_;
  std::vector<float> own_;   // sums of this rank
  std::vector<float> mean_;  // that ranks agreed on; empty: they did not
  std::vector<float> sent_;  // as receivers read them
  SketchScratch scratch_;
};

class SketchDecoder final : public Decoder {
 public:
  explicit SketchDecoder(Form form) : form_(std::move(form)) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, form_.codec, payload, weight, out);
    if (payload.size() != form_.payload_size())
      return fail(ErrorCode::kBadLength, "length does not match the density");
    ByteReader bytes(payload);
    const auto key = bytes.get<uint64_t>();
    thread_local SketchScratch scratch;  // decoders are shared between threads
    std::vector<float>& sums = scratch.sums;
    sums.resize(form_.sketch->kept());
    ValueReader reader(form_.format, bytes.take(bytes.remaining()));
    read_sums(reader, sums);
    if (!reader.good())
      return fail(ErrorCode::kCorrupt, "a sum is not finite or breaks its format");
    for (const float sum : sums)
      if (std::abs(sum) > kMostRead) return fail(ErrorCode::kCorrupt, "a sum is too large");
    form_.sketch->add_estimate(key, sums, weight, out, scratch);
    return Status::ok();
  }

 private:
  Status fail(ErrorCode code, const std::string& why) const {
    return Status::fail(code, std::string(form_.codec) + ": " + why);
  }

  const Form form_;
};

class SketchCodec final : public Codec {
 public:
  SketchCodec(const CodecInfo& info, const Options& options, MakeSketch make)
      : info_(info),
        make_(std::move(make)),
        shared_(options.flag("shared")),
        format_(value_format(options)) {
    info_.unbiased = options.flag("scaled") && format_ == ValueFormat::kFp32;
    info_.agreed = shared_ ? Agreed::kPositions : Agreed::kNothing;
  }

  const CodecInfo& info() const noexcept override { return info_; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return form_of(stream).payload_size();
  }
  size_t target(const StreamSpec& stream) const override { return form_of(stream).sketch->kept(); }
  std::vector<Round> rounds(const StreamSpec& stream, bool /*odd_step*/) const override {
    if (!shared_) return {};
    return {{.combine = Round::Combine::kMean, .size = target(stream) * sizeof(float)}};
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<SketchEncoder>(form_of(stream), stream);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    return std::make_unique<SketchDecoder>(form_of(stream));
  }

 private:
  Form form_of(const StreamSpec& stream) const {
    require_sparse_stream(info_.name, stream);
    return {
        .codec = info_.name, .sketch = make_(stream.count()), .format = format_, .shared = shared_};
  }

  CodecInfo info_;
  const MakeSketch make_;
  const bool shared_;
  const ValueFormat format_;
};

}  // namespace

std::span<const uint32_t> draw_signs(uint64_t key, uint32_t row, size_t begin, size_t count,
                                     SketchScratch& scratch) {
  const RandomKey sequence{.seed = key, .use = RandomUse::kCodec, .step = 1, .stream = row};
  const size_t blocks = (count + 127) / 128;
  scratch.signs.resize(std::max(scratch.signs.size(), 4 * blocks));
  for (size_t block = 0; block < blocks; ++block)
    std::ranges::copy(random_block(sequence, begin / 128 + block),
                      scratch.signs.begin() + static_cast<std::ptrdiff_t>(4 * block));
  return std::span(scratch.signs).first(4 * blocks);
}

float sum_factor(float largest) noexcept { return largest <= kLarge ? 1 : kSmall; }

float bounded_sum(float sum, float scale, float factor) noexcept {
  const float most = kMostSent * factor;
  return std::clamp(sum * scale, -most, most) / factor;
}

std::vector<OptionInfo> sketch_options(std::vector<OptionInfo> own) {
  std::vector<OptionInfo> all = {density_option()};
  all.front().help = "sums to send, of the number of values";
  std::move(own.begin(), own.end(), std::back_inserter(all));
  all.push_back({.name = "shared",
                 .type = OptionType::kFlag,
                 .fallback = "true",
                 .help = "the same signs and places on all ranks; else each its own"});
  all.push_back({.name = "scaled",
                 .type = OptionType::kFlag,
                 .fallback = "false",
                 .help = "scales estimates so that they are unbiased: for use without a memory"});
  all.push_back(value_format_option());
  return all;
}

std::unique_ptr<Codec> make_sketch_codec(const CodecInfo& info, const Options& options,
                                         MakeSketch make) {
  return std::make_unique<SketchCodec>(info, options, std::move(make));
}

}  // namespace thinwire
