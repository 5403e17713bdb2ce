// One look-up, or one one-hot vector, for all columns of categories.
// SPDX-License-Identifier: Apache-2.0
#include "train/models/table_columns.h"

#include <torch/torch.h>

#include <vector>

namespace thinwire {
namespace {

int64_t count_categories(const SampleShape& shape) {
  int64_t count = 0;
  for (const int64_t categories : shape.categories) count += categories;
  return count;
}

int64_t count_numbers(const SampleShape& shape) {
  return shape.input[0] - static_cast<int64_t>(shape.categories.size());
}

// The row of each column's first category.
std::vector<int64_t> first_rows(const SampleShape& shape) {
  std::vector<int64_t> rows;
  int64_t next = 0;
  for (const int64_t categories : shape.categories) {
    rows.push_back(next);
    next += categories;
  }
  return rows;
}

}  // namespace

Layer table_columns(const SampleShape& shape, int64_t length) {
  const int64_t numbers = count_numbers(shape), categories = count_categories(shape);
  const auto rows = [numbers, first = first_rows(shape)](const torch::Tensor& x) {
    const torch::Tensor codes = x.slice(1, numbers).to(torch::kLong);
    return codes + torch::tensor(first, torch::kLong).to(codes.device());
  };
  if (length == 0)
    return {.name = "columns", .module = nullptr, .forward = [=](const torch::Tensor& x) {
              const torch::Tensor hot = torch::one_hot(rows(x), categories).sum(1);
              return torch::cat({x.slice(1, 0, numbers), hot.to(x.scalar_type())}, 1);
            }};
  torch::nn::Embedding embedding(categories, length);
  return {.name = "embedding",
          .module = embedding.ptr(),
          .forward = [=](const torch::Tensor& x) mutable {
            return torch::cat({x.slice(1, 0, numbers), embedding->forward(rows(x)).flatten(1)}, 1);
          }};
}

int64_t count_values(const SampleShape& shape, int64_t length) {
  const auto columns = static_cast<int64_t>(shape.categories.size());
  return count_numbers(shape) + (length == 0 ? count_categories(shape) : columns * length);
}

}  // namespace thinwire
