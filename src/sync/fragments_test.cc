// Tests of how a model is cut into fragments.
// SPDX-License-Identifier: Apache-2.0
#include "sync/fragments.h"

#include <gtest/gtest.h>

namespace thinwire {
namespace {

using Indices = std::vector<std::vector<size_t>>;

std::vector<TensorSpec> named(const std::vector<std::string>& names) {
  std::vector<TensorSpec> tensors;
  for (const std::string& name : names) tensors.push_back({.name = name, .shape = {2}});
  return tensors;
}

TEST(Fragments, LayersAreNamedByTheirFirstNumber) {
  const std::pair<const char*, const char*> cases[] = {
      {"block1.attend.weight", "block1"},
      {"block1.norm1.bias", "block1"},
      {"transformer.h.11.ln_1.weight", "transformer.h.11"},
      {"layer2.0.conv1.weight", "layer2.0"},
      {"0.weight", "0"},
      {"embedding.token.weight", "embedding.token"},
      {"weight", "weight"},
      {"conv1.weight", "conv1"},
      {"stage3", "stage3"},
      {"a1.2.3", "a1.2.3"},
      {"", ""}};
  for (const auto& [tensor, layer] : cases) EXPECT_EQ(layer_of(tensor), layer);
}

// A tied layer may come back later.
TEST(Fragments, TensorsOfALayerStayTogether) {
  EXPECT_EQ(layers_of(named({"a.w", "h.0.w", "h.0.b", "a.b", "h.1.w"})),
            (Indices{{0, 3}, {1, 2}, {4}}));
  EXPECT_EQ(layers_of({}), Indices{});
}

TEST(Fragments, LayersAreDealtOutInEitherOrder) {
  const auto seven = named({"h.0.w", "h.1.w", "h.2.w", "h.3.w", "h.4.w", "h.5.w", "h.6.w"});
  EXPECT_EQ(cut_into_fragments(seven, 3, FragmentOrder::kStrided),
            (Indices{{0, 3, 6}, {1, 4}, {2, 5}}));
  EXPECT_EQ(cut_into_fragments(seven, 3, FragmentOrder::kSequential),
            (Indices{{0, 1, 2}, {3, 4}, {5, 6}}));
  for (const FragmentOrder order : {FragmentOrder::kStrided, FragmentOrder::kSequential}) {
    EXPECT_EQ(cut_into_fragments(seven, 1, order), (Indices{{0, 1, 2, 3, 4, 5, 6}}));
    EXPECT_EQ(cut_into_fragments(seven, 7, order).back(), (std::vector<size_t>{6}));
  }
}

}  // namespace
}  // namespace thinwire
