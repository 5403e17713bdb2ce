// BodyDecoder: reads the body of a boundary's message, on both ends, which then remember the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/boundary_plan.h"

namespace thinwire {

class BodyDecoder {
 public:
  // `plan` outlives this.
  explicit BodyDecoder(const BoundaryPlan& plan);

  // Adds what the body says to `values`: to those of the first `coded` samples what their streams
  // say, to the others what is there in full. Takes any bytes. On failure `values` are unspecified.
  Status add(std::span<const std::byte> body, size_t coded, std::span<float> values);

  void change_codec();  // to the plan's

  // Notes what the streams of a sparse codec keep. All samples are coded.
  Status note(std::span<const std::byte> body, size_t samples, const Visit& visit,
              KeptPositions& positions);

 private:
  template <typename Take>
  Status each_stream(std::span<const std::byte> streams, size_t coded, const Take& take);
  const Decoder& decoder(size_t samples);

  const BoundaryPlan& plan_;
  std::vector<std::unique_ptr<const Decoder>> decoders_;  // by the samples of a stream, less 1
  std::unique_ptr<const Decoder> full_decoder_;           // where there are first visits
  size_t full_size_ = 0;                                  // bytes of a sample there
};

}  // namespace thinwire
