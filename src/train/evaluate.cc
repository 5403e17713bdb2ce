// Computes loss and errors of a network over a data set.
// SPDX-License-Identifier: Apache-2.0
#include "train/evaluate.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "train/timetable.h"

namespace thinwire {
namespace {

// Sums over one batch.
struct BatchSums {
  double loss = 0;
  uint64_t wrong = 0;
  uint64_t predictions = 0;
};

BatchSums judge(const Task& task, const Batch& batch) {
  const torch::Tensor outputs = task.forward(batch.inputs);
  const double loss = task.loss(outputs, batch.targets).item<double>();
  const auto [wrong, predictions] = task.errors(outputs, batch.targets);
  return {
      .loss = loss * static_cast<double>(predictions), .wrong = wrong, .predictions = predictions};
}

torch::Tensor cross_entropy(const torch::Tensor& outputs, const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(outputs.flatten(0, -2), targets.flatten());
}

std::pair<uint64_t, uint64_t> arg_max_errors(const torch::Tensor& outputs,
                                             const torch::Tensor& targets) {
  const int64_t wrong = outputs.argmax(-1).ne(targets).sum().item<int64_t>();
  return {static_cast<uint64_t>(wrong), static_cast<uint64_t>(targets.numel())};
}

// Puts a module into evaluation mode, and back.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module)
      : module_(module), training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool training_;
};

}  // namespace

Task with_defaults(Task task) {
  if (!task.loss) task.loss = cross_entropy;
  if (!task.errors) task.errors = arg_max_errors;
  return task;
}

double own_loss(const Task& task, const Dataset& data, uint64_t samples, uint64_t batch) {
  const EvaluationMode mode(*task.module);
  const torch::NoGradGuard no_grad;
  samples = std::min(samples, data.size());
  double sum = 0, predictions = 0;
  for (uint64_t first = 0; first < samples; first += batch) {
    std::vector<uint64_t> ids(std::min(batch, samples - first));
    std::iota(ids.begin(), ids.end(), first);
    const BatchSums sums = judge(task, data.fetch(ids, {}));
    sum += sums.loss;
    predictions += static_cast<double>(sums.predictions);
  }
  return sum / predictions;
}

Score evaluate(Group& group, const Task& task, const Dataset& data, uint64_t batch,
               const FetchContext& context) {
  const EvaluationMode mode(*task.module);
  const torch::NoGradGuard no_grad;
  const uint64_t samples = data.size();
  const uint64_t batches = (samples + batch - 1) / batch;
  const auto ranks = static_cast<uint64_t>(group.size());
  const SampleRange whole{.begin = 0, .size = batches};
  const SampleRange mine = whole.part(static_cast<uint64_t>(group.rank()), ranks);

  const uint64_t most = (batches + ranks - 1) / ranks;
  std::vector<BatchSums> sums(most);
  std::vector<uint64_t> ids(std::min(batch, samples));
  for (uint64_t i = 0; i < mine.size; ++i) {
    const uint64_t first = (mine.begin + i) * batch;
    const uint64_t count = std::min(batch, samples - first);
    std::iota(ids.begin(), ids.end(), first);
    sums[i] = judge(task, data.fetch(std::span(ids).first(count), context));
  }

  std::vector<BatchSums> all(most * ranks);
  group.all_gather(std::as_bytes(std::span(sums)), std::as_writable_bytes(std::span(all)));
  BatchSums total;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    for (uint64_t i = 0; i < whole.part(rank, ranks).size; ++i) {
      const BatchSums& one = all[rank * most + i];
      total.loss += one.loss;
      total.wrong += one.wrong;
      total.predictions += one.predictions;
    }
  }
  const auto predictions = static_cast<double>(std::max<uint64_t>(1, total.predictions));
  return {.loss = total.loss / predictions,
          .error = static_cast<double>(total.wrong) / predictions,
          .samples = samples};
}

void judge_compressed(const Judge& judge, const Task& task, EvaluationEvent& event) {
  const Score test = judge.score(task, judge.test);
  event.compressed_loss = test.loss;
  event.compressed_error = test.error;
  if (judge.hold_out != nullptr)
    event.compressed_hold_out_error = judge.score(task, *judge.hold_out).error;
}

}  // namespace thinwire
