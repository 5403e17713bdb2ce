// terngrad: -1, 0 or 1 times the largest magnitude, at random [Wen et al., NIPS 2017].
//
//   s = max |x| over a tensor or block, or clip x sigma if that is less
//   decode(encode(x))[i] = s sign(x[i]) with probability min(|x[i]| / s, 1), else 0
//
// sigma is the standard deviation about the mean. Unbiased if clip is 0; what a clip takes off is
// lost, unless a memory is asked for. Values all alike have no deviation to clip at and are not
// clipped, where the authors' rule loses them.
//
// Every sender has the scale of its own values, or all have the largest (`shared_scale`), as Wen et
// al. have it so that sums of codes are codes of the sum. No sum is made of codes here, so all it
// changes is that draws are as coarse as those of the rank with the largest values.
//
// Payload, per tensor or block, as int8's with two bits per code:
//
//   f32 s        at least +0, finite
//       codes    -1, 0 or 1 in two's complement, from bit 0 up
// SPDX-License-Identifier: Apache-2.0
#include "codec/block_option.h"
#include "codec/builtin.h"
#include "codec/grid_codec.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "terngrad",
                          .id = 21,
                          .summary = "three levels, at random",
                          .paper = "TernGrad, NIPS 2017, arXiv:1705.07878",
                          .feedback = "none"};

std::unique_ptr<Codec> make(const Options& options) {
  CodecInfo info = kInfo;
  const auto clip = static_cast<float>(options.number("clip"));
  info.unbiased = clip == 0;
  if (options.flag("shared_scale")) info.agreed = Agreed::kScale;
  return make_grid_codec(info,
                         {.block = block_length(options),
                          .bits = 2,
                          .rule = clip == 0 ? kernel::GridRule::kMax : kernel::GridRule::kClip,
                          .levels = 1,
                          .clip = clip},
                         true);
}

}  // namespace

const CodecEntry& terngrad_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {{.name = "clip",
                   .type = OptionType::kNumber,
                   .fallback = "2.5",
                   .min = 0,
                   .max = 100,
                   .unit = "standard deviations",
                   .help = "largest magnitude that is not cut; 0 cuts none, which is unbiased"},
                  block_option("tensor", {"64", "256", "1024", "4096", "tensor"}),
                  {.name = "shared_scale",
                   .type = OptionType::kFlag,
                   .fallback = "false",
                   .help = "all ranks take the largest scale, agreed on before"}},
      .make = make};
  return entry;
}

}  // namespace thinwire
