// signum: the sign of every value and nothing else, for majority votes [Bernstein et al., ICML
// 2018, arXiv:1802.04434; with fault tolerance ICLR 2019, arXiv:1810.05291].
//
//   decode(encode(x))[i] = 1 if x[i] > 0, -1 if x[i] < 0
//
// In a scatter-reduce owners encode the mean of the ranks' signs again, so that everybody gets the
// sign of the majority. A bit has no third value: 0, which a tie between an even number of ranks
// gives too, becomes 1 where position + step is even and -1 elsewhere, which moves nothing in the
// mean over two steps. Public implementations differ here: some take +1 always, which with two
// ranks that disagree half the time drifts.
//
// The step's size is the learning rate alone, as in the paper; it wants a far smaller one than SGD.
// The memory is `momentum`; a remainder against values of another scale would grow without bound.
//
// Payload: u8 bits[], 1 = negative, from bit 0 up; unused bits are not looked at.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/device_codec.h"
#include "device/coded_values.h"
#include "kernel/code_bits.h"
#include "kernel/two_levels.h"

namespace thinwire {
namespace {

constexpr CodecInfo kSignum{.name = "signum",
                            .id = 25,
                            .summary = "signs alone; the mean over ranks becomes their majority",
                            .paper = "Signum with majority vote, ICLR 2019, arXiv:1810.05291",
                            .fixed_size = true,
                            .vote = true,
                            .block = 8,
                            .feedback = "momentum"};

constexpr kernel::Levels kLevels{.high = 1.0f, .low = -1.0f};
constexpr size_t kPart = 1024;  // values settled in cache at a time

// `from` with its zeros replaced by the smallest number of the sign that stands for them.
void settle_zeros(std::span<const float> from, uint64_t first, float* to) noexcept {
  constexpr float kTiny = std::numeric_limits<float>::min();
  const float even = first % 2 == 0 ? kTiny : -kTiny;
  for (size_t i = 0; i < from.size(); ++i)
    to[i] = from[i] != 0 ? from[i] : (i % 2 == 0 ? even : -even);
}

class SignumEncoder final : public Encoder {
 public:
  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    const std::span<const float> values = signal.values;
    std::array<float, kPart> settled;
    for (size_t begin = 0; begin < values.size(); begin += kPart) {
      const size_t count = std::min(kPart, values.size() - begin);
      settle_zeros(values.subspan(begin, count), call.offset + begin + call.step, settled.data());
      // Next to 1 the stand-in of a zero is none: rest is 0 minus the level.
      kernel::pack_levels(std::span(settled).first(count), kLevels,
                          out.subspan(begin / 8, kernel::code_bytes(count, 1)),
                          rest.empty() ? rest : rest.subspan(begin, count));
    }
    return {.size = kernel::code_bytes(values.size(), 1), .kept = values.size()};
  }
};

class SignumDecoder final : public Decoder {
 public:
  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, "signum", payload, weight, out);
    if (payload.size() != kernel::code_bytes(out.size(), 1))
      return Status::fail(ErrorCode::kBadLength, "signum: payload is not a bit per value");
    kernel::add_level_bits(payload, {.high = weight, .low = -weight}, out);
    return Status::ok();
  }
};

class Signum final : public Codec {
 public:
  const CodecInfo& info() const noexcept override { return kSignum; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return kernel::code_bytes(stream.count(), 1);
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<SignumEncoder>();
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& /*stream*/) const override {
    return std::make_unique<SignumDecoder>();
  }
};

BlockKernels device_kernels() {
  return {.size = [](const Part& part) { return kernel::code_bytes(part.count, 1); },
          .encode =
              [](auto& on, const Part& part, const Call& call, auto* values, auto* bytes,
                 auto* rest, void*) {
                device::encode_signs(on, values, part.count, call.offset + part.begin + call.step,
                                     bytes, rest);
              },
          .add = [](auto& on, const Part& part, auto* bytes, float weight, auto* out,
                    auto* /*bad*/) { device::add_signs(on, bytes, part.count, weight, out); }};
}

}  // namespace

const CodecEntry& signum_entry() {
  static const CodecEntry entry{
      .info = kSignum,
      .options = {},
      .make = [](const Options& /*options*/) { return std::make_unique<Signum>(); },
      .on_device =
          [](const Options& /*options*/, SharedWork work) {
            return make_block_device_codec(std::make_unique<Signum>(), kSignum.block,
                                           std::move(work),
                                           [](const StreamSpec&) { return device_kernels(); });
          }};
  return entry;
}

}  // namespace thinwire
