// Kernels of memories: names, numbers of threads, arguments.
// SPDX-License-Identifier: Apache-2.0
#include "device/memory_kernels.h"

#include <bit>
#include <cmath>

#include "device/work_grid.h"

namespace thinwire::device {
namespace {

// `Rule` of the text.
struct TextRule {
  float momentum, scale;
  uint32_t nesterov;
};

TextRule text_rule(const kernel::MomentumRule& rule) {
  return {rule.momentum, rule.scale, rule.nesterov ? 1u : 0u};
}

// Half a warp for each chunk, then one block that adds the moments of chunks.
template <class... Values>
void launch_with_moments(Launcher& on, std::string_view kernel, size_t count, ChunkMoments* entries,
                         const Values&... values) {
  const size_t chunks = moment_entries(count) - 1;
  ChunkMoments* const of_chunks = entries + 1;
  launch(on, kernel, sum_grid(chunks), values..., of_chunks);
  launch(on, "memories/fold_moments", kOneBlock, static_cast<const ChunkMoments*>(of_chunks),
         uint64_t{chunks}, entries);
}

}  // namespace

Moments moments_of(const ChunkMoments& total) noexcept {
  return {.abs_sum = total.abs_sum,
          .square_sum = total.square_sum,
          .abs_max = std::bit_cast<float>(total.abs_max),
          .finite = std::isfinite(total.abs_sum)};
}

void moments(Launcher& on, const float* values, size_t count, ChunkMoments* entries) {
  launch_with_moments(on, "memories/moments", count, entries, values, uint64_t{count});
}

void weighted_sum_with_moments(Launcher& on, float p, const float* a, float q, const float* b,
                               float* out, size_t count, ChunkMoments* entries) {
  launch_with_moments(on, "memories/weighted_sum_with_moments", count, entries, p, a, q, b, out,
                      uint64_t{count});
}

void add_velocity(Launcher& on, const kernel::MomentumRule& rule, const float* gradient,
                  const float* velocity, const float* sum, float* new_velocity, float* new_sum,
                  size_t count, ChunkMoments* entries) {
  launch_with_moments(on, "memories/add_velocity", count, entries, text_rule(rule), gradient,
                      velocity, sum, new_velocity, new_sum, uint64_t{count});
}

void form_ahead(Launcher& on, const kernel::MomentumRule& rule, float tail, const float* gradient,
                const float* velocity, const float* sum, float* new_velocity, float* new_sum,
                float* signal, size_t count, ChunkMoments* entries) {
  launch_with_moments(on, "memories/form_ahead", count, entries, text_rule(rule), tail, gradient,
                      velocity, sum, new_velocity, new_sum, signal, uint64_t{count});
}

void weighted_sum(Launcher& on, float p, const float* a, float q, const float* b, float* out,
                  size_t count) {
  launch(on, "memories/weighted_sum", work_grid(count), p, a, q, b, out, uint64_t{count});
}

void mask_velocity(Launcher& on, const kernel::MomentumRule& rule, const float* gradient,
                   const float* sum, const float* rest, float* new_velocity, size_t count) {
  launch(on, "memories/mask_velocity", work_grid(count), text_rule(rule), gradient, sum, rest,
         new_velocity, uint64_t{count});
}

void mask_velocity_at(Launcher& on, const kernel::MomentumRule& rule, const uint32_t* positions,
                      size_t kept, const float* gradient, const float* sum, const float* rest,
                      float* new_velocity) {
  launch(on, "memories/mask_velocity_at", work_grid(kept), text_rule(rule), positions,
         uint64_t{kept}, gradient, sum, rest, new_velocity);
}

void settle_ahead(Launcher& on, const kernel::MomentumRule& rule, float tail, const float* gradient,
                  const float* rest, float* new_velocity, float* new_sum, size_t count) {
  launch(on, "memories/settle_ahead", work_grid(count), text_rule(rule), tail, gradient, rest,
         new_velocity, new_sum, uint64_t{count});
}

void advance_estimate(Launcher& on, const float* estimate, const float* gradient, float* rest,
                      size_t count) {
  launch(on, "memories/advance_estimate", work_grid(count), estimate, gradient, rest,
         uint64_t{count});
}

void add_and_copy(Launcher& on, float* total, float* values, size_t count) {
  launch(on, "memories/add_and_copy", work_grid(count), total, values, uint64_t{count});
}

}  // namespace thinwire::device
