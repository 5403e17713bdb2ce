// acsgd: AC-SGD's fixed point, k bits under the largest magnitude in sixteen bits. Biased.
//
//   scale = max |x| over a tensor or block, as binary16
//   c     = x 2^(k-1) / (scale + 1e-6) rounded to nearest, from -2^(k-1) to 2^(k-1) - 1
//   decode(encode(x))[i] = c scale / 2^(k-1)
//
// The authors add 1e-6 to a tensor of half floats: 1e-6 and the sum are rounded to binary16. Scales
// from 2^-8 up stay as they are.
//
// As in the notebooks of Rudakov et al. (arXiv:2401.07788), which took it from AC-SGD (Wang et al.,
// NeurIPS 2022). Two things follow from its rule. It is not symmetric: +scale arrives one step
// short, at k = 2 as scale / 2. And it is made for activations: magnitudes below 3e-8 round to a
// scale of 0 and all is lost, below 1e-4 the 1e-6 shrinks what arrives by more than 1 %; those
// above 65504 saturate. Feedback carries all of that.
//
// Payload, per tensor or block:
//
//   f16 scale    at least +0, finite
//       codes    two's complement, k bits each, from bit 0 up
// SPDX-License-Identifier: Apache-2.0
#include "codec/block_option.h"
#include "codec/builtin.h"
#include "codec/grid_codec.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "acsgd",
                          .id = 19,
                          .summary = "fixed point under a 16-bit scale",
                          .paper = "AC-SGD, NeurIPS 2022, arXiv:2206.01299"};

std::unique_ptr<Codec> make(const Options& options) {
  return make_grid_codec(kInfo,
                         {.block = block_length(options),
                          .bits = static_cast<size_t>(options.integer("bits")),
                          .rule = kernel::GridRule::kHalf},
                         false);
}

}  // namespace

const CodecEntry& acsgd_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {{.name = "bits",
                   .type = OptionType::kInteger,
                   .fallback = "4",
                   .min = 2,
                   .max = 8,
                   .unit = "bits",
                   .help = "k, of each value"},
                  block_option("tensor", {"64", "256", "1024", "4096", "tensor"})},
      .make = make};
  return entry;
}

}  // namespace thinwire
