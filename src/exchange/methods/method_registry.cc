// The table of methods.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "exchange/methods/method.h"

namespace thinwire {

extern const MethodEntry kDense, kScatterReduce, kGather, kSparseReduce, kLowRank, kSharedIndex,
    kLibrary;

std::span<const MethodEntry* const> list_methods() noexcept {
  static constexpr std::array kAll = {&kDense,   &kScatterReduce, &kGather, &kSparseReduce,
                                      &kLowRank, &kSharedIndex,   &kLibrary};
  return kAll;
}

}  // namespace thinwire
