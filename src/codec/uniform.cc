// uniform: k bits between the smallest and the largest value of a block or tensor.
//
//   decode(encode(x))[i] = mid + (c + 1/2) step,  c = (x[i] - mid) / step - 1/2 rounded, k bits
//   mid = (lo + hi) / 2,  step = (hi - lo) / (2^k - 1)
//
// This is lo + c' (hi - lo) / (2^k - 1) of Rudakov et al. (arXiv:2401.07788) with c' = c + 2^(k-1):
// lo and hi are on the grid but for rounding in fp32, zero in general is not. Counted from the
// middle no intermediate result overflows, whatever lo and hi are. Equal values arrive as they are.
//
// `rounding=nearest` is biased, with an error of at most step / 2; `random` is unbiased, with at
// most step. The paper's lo and hi are those of a whole batch tensor: `block=tensor`.
//
// Payload, per block or tensor:
//
//   f32 mid, f32 step    step at least +0, |mid| + (2^k - 1) / 2 x step finite
//       codes            two's complement, k bits each, from bit 0 up
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "codec/block_option.h"
#include "codec/builtin.h"
#include "codec/grid_codec.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "uniform",
                          .id = 16,
                          .summary = "k bits between smallest and largest",
                          .paper = "arXiv:2401.07788"};

CodecInfo info_of(const Options& options) {
  CodecInfo info = kInfo;
  info.unbiased = random_rounding(options);
  return info;
}

kernel::GridBlocks blocks_of(const Options& options) {
  return {.block = block_length(options),
          .bits = static_cast<size_t>(options.integer("bits")),
          .rule = kernel::GridRule::kMinMax};
}

}  // namespace

const CodecEntry& uniform_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {{.name = "bits",
                   .type = OptionType::kInteger,
                   .fallback = "4",
                   .min = 1,
                   .max = 8,
                   .unit = "bits",
                   .help = "k, of each value"},
                  block_option("256", {"64", "256", "1024", "4096", "tensor"}),
                  rounding_option()},
      .make =
          [](const Options& options) {
            return make_grid_codec(info_of(options), blocks_of(options), random_rounding(options));
          },
      .on_device =
          [](const Options& options, SharedWork work) {
            return make_grid_device_codec(info_of(options), blocks_of(options),
                                          random_rounding(options), std::move(work));
          }};
  return entry;
}

}  // namespace thinwire
