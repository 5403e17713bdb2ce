// counted_dropout: dropout with masks from the counter-based generator.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/check.h"
#include "core/random.h"
#include "thinwire/torch.h"
#include "train/draw_context.h"
#include "train/run_device.h"

namespace thinwire {
namespace {

thread_local DrawContext* current = nullptr;

// Fills values[i] with `kept` where word first + i is at least `threshold`, else with zero: one
// Philox block per four values.
void fill_mask(const RandomKey& key, uint64_t first, uint32_t threshold, float kept,
               std::span<float> values) {
  std::array<uint32_t, 4> words{};
  uint64_t block = UINT64_MAX;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t position = first + i;
    if (position / 4 != block) words = random_block(key, block = position / 4);
    values[i] = words[position % 4] >= threshold ? kept : 0.0f;
  }
}

}  // namespace

DrawScope::DrawScope(DrawContext context) : context_(context), outer_(current) {
  current = &context_;
}
DrawScope::~DrawScope() { current = outer_; }

void DrawScope::begin_layer(size_t index) noexcept {
  if (current != nullptr) current->calls = static_cast<uint32_t>(index) << 16;
}

torch::Tensor counted_dropout(const torch::Tensor& input, double probability, bool training) {
  THINWIRE_CHECK(probability >= 0 && probability < 1, "dropout: probability is not in [0, 1)");
  if (!training || probability == 0) return input;
  THINWIRE_CHECK(current != nullptr, "dropout: not inside a training step of train_task");
  DrawContext& context = *current;
  const auto count = static_cast<uint64_t>(input.numel());
  THINWIRE_CHECK(context.rows > 0 && count % context.rows == 0,
                 "dropout: the first dimension must be the samples of the batch");

  const RandomKey key{.seed = context.seed,
                      .use = RandomUse::kDropout,
                      .step = context.step,
                      .stream = context.calls++};
  const auto threshold = static_cast<uint32_t>(std::ldexp(probability, 32));
  torch::Tensor mask = torch::empty(input.sizes(), torch::kFloat32);
  fill_mask(key, context.first * (count / context.rows), threshold,
            static_cast<float>(1 / (1 - probability)),
            {mask.mutable_data_ptr<float>(), static_cast<size_t>(count)});
  return input * moved(mask, input.device()).to(input.dtype());
}

}  // namespace thinwire
