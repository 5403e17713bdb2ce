// What committed results say about the accuracy of codecs. Written by tools/known_accuracy.py.
// SPDX-License-Identifier: Apache-2.0
#include "thinwire/codec_choice.h"

namespace thinwire {

// From docs/results/runs/defaults.jsonl, else methods.jsonl: error in points above that of fp32,
// same recipe and seeds; on held-out samples where there are some.
std::span<const KnownAccuracy> known_accuracies() {
  static constexpr KnownAccuracy kAll[] = {
      {"acsgd:bits=4", "char-lstm", 2, -0.45, 2},
      {"acsgd:bits=4", "resnet20", 3, -1.88, 1},
      {"adacomp:scale_factor=3", "char-lstm", 2, -0.90, 2},
      {"adacomp:scale_factor=3", "resnet20", 3, -1.01, 3},
      {"bf16", "char-lstm", 2, 0.23, 2},
      {"bf16", "resnet20", 3, -0.28, 1},
      {"dgc:density=0.01", "char-lstm", 2, 0.21, 2},
      {"dgc:density=0.01", "resnet20", 3, -0.24, 3},
      {"dgc:density=0.1", "resnet20", 3, 2.60, 1},
      {"fp16", "char-lstm", 2, 0.24, 2},
      {"fp16", "resnet20", 3, 0.30, 1},
      {"gaussiank:density=0.01", "char-lstm", 2, 1.50, 2},
      {"gaussiank:density=0.01", "resnet20", 3, 3.77, 3},
      {"int4", "char-lstm", 2, -0.08, 2},
      {"int4", "resnet20", 3, 0.84, 1},
      {"int8", "char-lstm", 2, 0.34, 2},
      {"int8", "resnet20", 3, 0.24, 3},
      {"lgc:density=0.1", "resnet20", 3, 0.49, 1},
      {"natural", "char-lstm", 2, 0.04, 2},
      {"natural", "resnet20", 3, 0.24, 1},
      {"onebit", "char-lstm", 2, 1.18, 2},
      {"onebit", "resnet20", 3, 13.64, 1},
      {"powersgd:rank=1", "char-lstm", 2, 1.73, 2},
      {"powersgd:rank=1", "resnet20", 3, 17.04, 1},
      {"powersgd:rank=4", "char-lstm", 2, 0.61, 2},
      {"powersgd:rank=4", "resnet20", 3, 1.89, 3},
      {"powersgd:rank=4,alternate=true", "char-lstm", 2, -0.27, 2},
      {"powersgd:rank=4,alternate=true", "resnet20", 3, 11.71, 1},
      {"qsgd:levels=7", "char-lstm", 2, 1.06, 2},
      {"qsgd:levels=7", "resnet20", 3, -0.16, 1},
      {"randomk:density=0.1", "char-lstm", 2, 11.37, 2},
      {"randomk:density=0.1", "resnet20", 3, 11.95, 3},
      {"redsync:density=0.01", "char-lstm", 2, -0.18, 2},
      {"redsync:density=0.01", "resnet20", 3, -1.17, 3},
      {"scalecom:density=0.01", "char-lstm", 2, 2.01, 2},
      {"scalecom:density=0.1", "resnet20", 3, 4.30, 1},
      {"sidco:density=0.01", "char-lstm", 2, -0.96, 2},
      {"sidco:density=0.01", "resnet20", 3, 0.40, 3},
      {"sidco:density=0.1", "resnet20", 3, -0.89, 3},
      {"sign", "char-lstm", 2, -0.22, 2},
      {"sign", "resnet20", 3, 15.09, 3},
      {"signum", "char-lstm", 2, 10.21, 2},
      {"signum", "resnet20", 3, 0.88, 1},
      {"terngrad", "char-lstm", 2, 0.34, 2},
      {"terngrad", "resnet20", 3, -1.04, 1},
      {"threshold:threshold=0.001", "char-lstm", 2, 0.90, 2},
      {"threshold:threshold=0.003", "resnet20", 3, -0.96, 3},
      {"topk:density=0.01", "char-lstm", 2, -0.11, 2},
      {"topk:density=0.01", "resnet20", 3, -0.47, 3},
      {"topk:density=0.01,block=4096", "char-lstm", 2, 0.73, 2},
      {"topk:density=0.01,block=4096", "resnet20", 3, -0.58, 3},
      {"topk:density=0.01,values=int8", "char-lstm", 2, -0.45, 2},
      {"topk:density=0.01,values=int8", "resnet20", 3, 0.17, 3},
      {"topk:density=0.1", "resnet20", 3, 0.14, 3},
      {"uniform:bits=4", "char-lstm", 2, -0.08, 2},
      {"uniform:bits=4", "resnet20", 3, -0.89, 1},
  };
  return kAll;
}

}  // namespace thinwire
