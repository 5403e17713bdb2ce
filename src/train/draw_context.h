// DrawContext: the place of a forward pass in the run, by which counted_dropout draws its masks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace thinwire {

struct DrawContext {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t first = 0;  // place of this pass's first sample in the whole batch of all ranks
  uint64_t rows = 0;   // samples in this pass
  uint32_t calls = 0;  // of counted_dropout in this pass
};

// Makes a context that of the calling thread's forward pass, while it lives.
class DrawScope {
 public:
  explicit DrawScope(DrawContext context);
  ~DrawScope();
  DrawScope(const DrawScope&) = delete;
  DrawScope& operator=(const DrawScope&) = delete;

  // The calls that follow are those of layer `index`, up to 65,536 of them. Nothing outside a
  // scope.
  static void begin_layer(size_t index) noexcept;

 private:
  DrawContext context_;
  DrawContext* outer_;
};

}  // namespace thinwire
