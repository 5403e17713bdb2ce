// Stacked LSTMs that predict the next character [Karpathy, 2015; AdaComp's Shakespeare model].
//
// By default two layers of 256 on one-hot characters: 873,793 parameters for an alphabet of 65.
// Each layer is a module of its own, with dropout between them, because libtorch's LSTM of several
// layers draws its dropout from libtorch's generator. Every sample starts with zero state.
// SPDX-License-Identifier: Apache-2.0
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <vector>

#include "train/models/builtin_models.h"

namespace thinwire {
namespace {

namespace nn = torch::nn;

class CharLstm final : public nn::Module {
 public:
  CharLstm(int64_t alphabet, int64_t embedding, int64_t hidden, int64_t layers, double dropout)
      : alphabet_(alphabet), dropout_(dropout) {
    if (embedding > 0)
      embedding_ = register_module("embedding", nn::Embedding(alphabet, embedding));
    int64_t inputs = embedding > 0 ? embedding : alphabet;
    for (int64_t i = 1; i <= layers; ++i) {
      const nn::LSTM layer(nn::LSTMOptions(inputs, hidden).batch_first(true));
      layers_.push_back(register_module("lstm" + std::to_string(i), layer));
      inputs = hidden;
    }
    output_ = register_module("output", nn::Linear(hidden, alphabet));
  }

  // samples x characters -> samples x characters x alphabet.
  torch::Tensor forward(const torch::Tensor& codes) {
    torch::Tensor x = embedding_.is_empty() ? torch::one_hot(codes, alphabet_).to(torch::kFloat)
                                            : embedding_(codes);
    for (auto& layer : layers_) x = drop(std::get<0>(layer(x)), dropout_, is_training());
    return output_(x);
  }

 private:
  int64_t alphabet_;
  double dropout_;
  nn::Embedding embedding_ = nullptr;
  std::vector<nn::LSTM> layers_;
  nn::Linear output_ = nullptr;
};

}  // namespace

Task make_char_lstm(const ModelOptions& options, const SampleShape& shape) {
  if (shape.input.size() != 1 || !shape.categories.empty())
    throw Error(ErrorCode::kMismatch, "model char-lstm takes text: one dimension of characters");
  return task_of(std::make_shared<CharLstm>(shape.classes, options.embedding,
                                            or_default(options.hidden, 256),
                                            or_default(options.layers, 2), options.dropout));
}

}  // namespace thinwire
