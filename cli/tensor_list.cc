// Reads lists of tensors.
// SPDX-License-Identifier: Apache-2.0
#include "cli/tensor_list.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <set>
#include <sstream>

#include "cli/text.h"

namespace thinwire::cli {
namespace {

constexpr std::array kKinds = {
    TensorKind::kConvolution, TensorKind::kLinear, TensorKind::kRecurrent, TensorKind::kEmbedding,
    TensorKind::kBias,        TensorKind::kNorm,   TensorKind::kOther};

bool parse_shape(const std::string& text, std::vector<uint64_t>& shape) {
  constexpr double kMost = 1e12;  // values
  double values = 1;
  for (const std::string& part : split(text, 'x')) {
    uint64_t side = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), side);
    if (error != std::errc() || end != part.data() + part.size() || side == 0) return false;
    values *= static_cast<double>(side);
    if (values > kMost) return false;
    shape.push_back(side);
  }
  return !shape.empty();
}

TensorKind usual_kind(const std::vector<uint64_t>& shape) {
  if (shape.size() == 1) return TensorKind::kBias;
  return shape.size() == 2 ? TensorKind::kLinear : TensorKind::kConvolution;
}

// Empty, or what is wrong.
std::string parse_tensor(const std::string& line, TensorSpec& tensor) {
  std::istringstream words(line);
  std::string shape, kind, more;
  words >> tensor.name >> shape >> kind >> more;
  if (!parse_shape(shape, tensor.shape))
    return fmt::format("'{}' is no shape (as in 64x3x7x7)", shape);
  tensor.kind = usual_kind(tensor.shape);
  if (!more.empty()) return fmt::format("'{}' is one word too many", more);
  if (kind.empty()) return "";
  std::vector<std::string> names;
  for (const TensorKind one : kKinds) {
    names.emplace_back(to_string(one));
    if (kind != names.back()) continue;
    tensor.kind = one;
    return "";
  }
  return fmt::format("unknown kind '{}' ({})", kind, known_names(kind, names));
}

}  // namespace

Result<std::vector<TensorSpec>> parse_tensor_list(std::string_view text, const std::string& path) {
  std::vector<TensorSpec> tensors;
  std::set<std::string> names;
  size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (trim(line).empty() || trim(line).front() == '#') continue;
    TensorSpec tensor;
    std::string wrong = parse_tensor(line, tensor);
    if (wrong.empty() && !names.insert(tensor.name).second)
      wrong = fmt::format("a second tensor '{}'", tensor.name);
    if (!wrong.empty())
      return Status::fail(ErrorCode::kBadOption, fmt::format("{}:{}: {}", path, number, wrong));
    tensors.push_back(std::move(tensor));
  }
  if (tensors.empty())
    return Status::fail(ErrorCode::kBadOption, path +
                                                   ": has no tensors; a line for each, as in "
                                                   "conv1.weight 64x3x7x7");
  return tensors;
}

}  // namespace thinwire::cli
