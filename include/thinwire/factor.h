// Factored models: two thin factors in the place of a linear layer's or an embedding's weights,
// which reproduce the subspace of the layer's outputs [unified low-rank compression for
// click-through models, KDD 2024, arXiv 2405.18146]. docs/training.md, Factored models, has the
// formulas.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace thinwire {

struct FactorRequest {
  std::string run = {};   // a folder with checkpoints, or a checkpoint
  std::string data = {};  // folder with data sets; thinwire's own are always found
  uint64_t rank = 0;      // of every layer that it makes smaller; 0: each has its own, by `keep`
  double keep = 0.99;     // share of the variance of a layer's outputs
  std::string out = {};   // safetensors file for the factored network; empty: none
  // Training samples, at equal distances, that say what outputs are; 0: all.
  uint64_t calibration = 2048;
};

// A linear layer or an embedding.
struct FactoredLayer {
  std::string name;  // of its module
  bool embedding = false;
  uint64_t rows = 0;     // of its weights: outputs, or of an embedding its entries
  uint64_t columns = 0;  // inputs, or of an embedding the length of an entry
  uint64_t rank = 0;     // 0: left as it is, because factors would not be smaller
  // The outputs at calibration vary in `determined` of the `directions` that a layer of this shape
  // has. The rank is no higher than `determined`, because samples say nothing of further
  // directions: a number of outputs vary in one direction less at most. Both are 0 where no sample
  // reaches the layer.
  uint64_t determined = 0;
  uint64_t directions = 0;
  double share = 1;         // of the outputs' variance at calibration that is kept
  uint64_t parameters = 0;  // weights and bias before
  uint64_t factored = 0;    // and after
};

struct FactorScore {
  double loss = 0;   // mean over the test samples
  double error = 0;  // share of wrong predictions
};

struct FactorReport {
  std::string data;
  std::string model;
  uint64_t step = 0;  // of the checkpoint
  uint64_t training_samples = 0;
  uint64_t calibration = 0;  // samples that were used
  uint64_t test_samples = 0;
  std::vector<FactoredLayer> layers = {};
  uint64_t parameters = 0;      // of the whole network before
  uint64_t factored = 0;        // and after
  FactorScore trained = {};     // of the network as it is
  FactorScore by_outputs = {};  // of the factored network
  FactorScore by_weights = {};  // of its weights' own singular values instead, at the same ranks
};

// Reads the newest weights of the run, and the data that its recipe names. The file has
// `LAYER.weight.left`, `LAYER.weight.right` and `LAYER.bias` of each factored layer, and every
// other array under its own name, all float32. Throws Error: kBadOption for `keep` outside (0, 1]
// and as check_output for `out`; kIo where there is no run, checkpoint or data; kNonFinite for a
// network whose outputs are not finite; and those of damaged files, by name.
FactorReport factor_model(const FactorRequest& request);

}  // namespace thinwire
