// randomk: k = density x count values at random positions, which cost nothing [Stich et al.,
// NeurIPS 2018].
//
//   decode(encode(x))[i] = s x[i] at k positions, else 0      s = d/k if scaled, else 1
//
// The positions are drawn without replacement from a key of eight bytes, which travels with the
// values. `shared`: the key comes from the seed, the step and the stream, so that all ranks send
// the same positions, and their values could be added position by position. Otherwise the rank's
// salt takes part: ranks send different positions, and together cover more of the vector.
//
// Shared, it has one round, of method shared-index: the mean over ranks of the k values, f32.
// Nothing else travels.
//
// Scaled it is unbiased, of variance d/k - 1 times |x|^2: do not use that with feedback, which it
// makes diverge. Unscaled it is a contraction by 1 - k/d, on average: use it with feedback.
//
// Public implementations differ: they draw with replacement, so that fewer than k different
// positions are sent, do not scale where they claim to be unbiased, and reseed the generator of the
// whole program.
//
// Payload:
//
//   u64 key
//       values[k]   codec/kept_values.h, in ascending order of position
//
// Encoding reads and writes what is kept, and no more if the remainder takes the place of the
// values.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/codec_random.h"
#include "codec/random_positions.h"
#include "codec/sparse_codec.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/checksum.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "randomk",
                          .id = 9,
                          .summary = "values at random positions, the same on all ranks",
                          .paper = "Stich et al., NeurIPS 2018, arXiv:1809.07599",
                          .fixed_size = true,
                          .sparse = true,
                          .agreed = Agreed::kPositions};

using Block = std::array<float, kValueBlock>;

std::vector<OptionInfo> options_table() {
  return {density_option(),
          {.name = "shared",
           .type = OptionType::kFlag,
           .fallback = "true",
           .help = "the same positions on all ranks; else each its own"},
          {.name = "scaled",
           .type = OptionType::kFlag,
           .fallback = "false",
           .help = "times d/k, which makes it unbiased: for use without a memory"},
          value_format_option()};
}

// What encoder and decoder know of a stream.
struct Shape {
  size_t count;
  size_t kept;
  ValueFormat format;

  size_t payload_size() const noexcept { return sizeof(uint64_t) + value_bytes(format, kept); }
};

class RandomkEncoder final : public Encoder {
 public:
  RandomkEncoder(const Shape& shape, std::string_view stream, bool shared, bool scaled)
      : shape_(shape),
        stream_(checksum(std::as_bytes(std::span(stream)), {})),
        shared_(shared),
        scale_(scaled && shape.kept > 0 ? static_cast<float>(static_cast<double>(shape.count) /
                                                             static_cast<double>(shape.kept))
                                        : 1) {}

  size_t offer(size_t /*round*/, const Signal& signal, const Call& call,
               std::span<std::byte> out) override {
    ByteWriter writer(out);
    for (const uint32_t position : drawn_.draw(key_of(call), shape_.count, shape_.kept))
      writer.put(scaled(signal.values[position]));
    return writer.written();
  }

  Status adopt(size_t /*round*/, std::span<const std::byte> combined) override {
    mean_.resize(shape_.kept);
    const auto to = std::as_writable_bytes(std::span(mean_));
    std::copy_n(combined.begin(), to.size(), to.begin());  // may be none
    return Status::ok();
  }

  void commit() override { mean_.clear(); }
  void rollback() override { mean_.clear(); }

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    THINWIRE_CHECK(values.size() == shape_.count,
                   "randomk: values are not as many as the stream has");
    const uint64_t key = key_of(call);
    const auto positions = drawn_.draw(key, shape_.count, shape_.kept);
    const auto own = [&](size_t i) { return scaled(values[positions[i]]); };
    const bool agreed = !mean_.empty();
    const float share = call.share();
    const auto sent = [&](size_t i) { return agreed ? mean_[i] : own(i); };
    const auto bytes = out.subspan(sizeof key, value_bytes(shape_.format, shape_.kept));
    ByteWriter(out).put(key);
    if (!rest.empty() && rest.data() != values.data())
      std::copy(values.begin(), values.end(), rest.begin());
    ValueWriter writer(shape_.format, sent_mean(shape_.format, shape_.kept, sent), bytes);
    ValueReader reader(shape_.format, bytes);
    Block block;
    for (size_t begin = 0; begin < positions.size(); begin += block.size()) {
      const auto some = std::span(block).first(std::min(block.size(), positions.size() - begin));
      for (size_t i = 0; i < some.size(); ++i) some[i] = sent(begin + i);
      writer.write(some, {});
      if (rest.empty()) continue;
      reader.read(some);
      // Of this rank's own what it offered has gone. All that take part keep what the format loses
      // of the mean.
      for (size_t i = 0; i < some.size(); ++i) {
        const float value = values[positions[begin + i]];
        rest[positions[begin + i]] =
            agreed ? value - own(begin + i) + share * (mean_[begin + i] - some[i])
                   : value - some[i];
      }
    }
    return {.size = shape_.payload_size(),
            .kept = shape_.kept,
            .target = shape_.kept,
            .positions = positions};
  }

 private:
  uint64_t key_of(const Call& call) const { return payload_key(call, stream_, shared_); }

  float scaled(float value) const {
    constexpr float kMax = std::numeric_limits<float>::max();
    return std::clamp(value * scale_, -kMax, kMax);
  }

  Shape shape_;
  uint64_t stream_;  // hash of its name: streams draw different positions
  bool shared_;
  float scale_;  // s
  RandomPositions drawn_;
  std::vector<float> mean_;  // that ranks agreed on; empty: they did not
};

class RandomkDecoder final : public Decoder {
 public:
  explicit RandomkDecoder(const Shape& shape) : shape_(shape) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, "randomk", payload, weight, out);
    return read(payload, [&](std::span<const uint32_t> at, std::span<const float> values) {
      for (size_t i = 0; i < at.size(); ++i) out[at[i]] += weight * values[i];
    });
  }

  Status visit(std::span<const std::byte> payload, const KeptVisitor& visitor) const override {
    return read(payload, visitor);
  }

 private:
  template <typename Visit>
  Status read(std::span<const std::byte> payload, const Visit& visit) const {
    if (payload.size() != shape_.payload_size())
      return Status::fail(ErrorCode::kBadLength, "randomk: length does not match the density");
    ByteReader bytes(payload);
    const auto key = bytes.get<uint64_t>();
    ValueReader reader(shape_.format, bytes.take(bytes.remaining()));
    thread_local RandomPositions drawn;  // decoders are shared between threads, its memory is not
    const auto positions = drawn.draw(key, shape_.count, shape_.kept);
    Block block;
    for (size_t begin = 0; begin < positions.size(); begin += block.size()) {
      const auto some = std::span(block).first(std::min(block.size(), positions.size() - begin));
      reader.read(some);
      visit(positions.subspan(begin, some.size()), some);
    }
    if (!reader.good())
      return Status::fail(ErrorCode::kCorrupt,
                          "randomk: a value is not finite or breaks its format");
    return Status::ok();
  }

  Shape shape_;
};

class RandomkCodec final : public Codec {
 public:
  explicit RandomkCodec(const Options& options)
      : info_(kInfo),
        density_(options.number("density")),
        shared_(options.flag("shared")),
        scaled_(options.flag("scaled")),
        format_(value_format(options)) {
    info_.unbiased = scaled_ && format_ == ValueFormat::kFp32;
    info_.values = format_;
    info_.agreed = shared_ ? Agreed::kPositions : Agreed::kNothing;
  }

  const CodecInfo& info() const noexcept override { return info_; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return shape_of(stream).payload_size();
  }
  size_t max_kept(const StreamSpec& stream) const override { return shape_of(stream).kept; }
  std::vector<Round> rounds(const StreamSpec& stream, bool /*odd_step*/) const override {
    if (!shared_) return {};
    return {{.combine = Round::Combine::kMean, .size = shape_of(stream).kept * sizeof(float)}};
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<RandomkEncoder>(shape_of(stream), stream.name, shared_, scaled_);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    return std::make_unique<RandomkDecoder>(shape_of(stream));
  }

 private:
  Shape shape_of(const StreamSpec& stream) const {
    require_sparse_stream(kInfo.name, stream);
    const size_t count = stream.count();
    return {.count = count, .kept = kept_target(density_, count), .format = format_};
  }

  CodecInfo info_;
  double density_;
  bool shared_;
  bool scaled_;
  ValueFormat format_;
};

}  // namespace

const CodecEntry& randomk_entry() {
  static const CodecEntry entry{
      .info = kInfo, .options = options_table(), .make = [](const Options& options) {
        return std::make_unique<RandomkCodec>(options);
      }};
  return entry;
}

}  // namespace thinwire
