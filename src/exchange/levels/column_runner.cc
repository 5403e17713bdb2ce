// ColumnRunner: brings the steps of all columns to one verdict.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/levels/column_runner.h"

#include <string>
#include <utility>

#include "exchange/levels/holders.h"

namespace thinwire {

void check_grid(int columns, int ranks) {
  if (ranks % columns == 0) return;
  throw Error(ErrorCode::kBadOption, "exchange: columns = " + std::to_string(columns) +
                                         " of one length do not make up " + std::to_string(ranks) +
                                         " ranks; choose one of " + divisors_text(ranks));
}

ColumnRunner::ColumnRunner(const Sections& sections, const ExchangeOptions& options,
                           const std::vector<TensorSpec>& tensors, Channels channels, Store& store)
    : tensors_(tensors),
      all_(std::move(channels.all)),
      column_(sections, options, tensors, std::move(channels.between), store) {
  column_.number_ranks(all_->rank() % options.columns, options.columns);
}

void ColumnRunner::compare_shared(Group& group) {
  together(group, [&] { column_.compare_shared(column_.channel()); });
}

std::vector<bool> ColumnRunner::owners_owe() {
  std::vector<bool> any;
  for (const bool owe : column_.owners_owe()) any.push_back(all_->max(owe ? 1 : 0) != 0);
  return any;
}

void ColumnRunner::begin(uint64_t step) {
  column_.channel().set_deadline(all_->deadline());
  column_.begin(step);
}

// Streams follow from shapes, which differ between columns: a stream is told to all as its first
// tensor.
uint64_t ColumnRunner::fault_word() const noexcept {
  const Verdict found = unpack_verdict(column_.fault_word());
  const int rank = found.rank < 0 ? found.rank : column_.context().number_of(found.rank);
  FaultLog faults;
  if (found.asked) faults.ask_to_skip(rank);
  if (found.code != ErrorCode::kOk)
    faults.add(found.code, plan().streams[found.stream].tensors.front(), rank);
  return faults.word();
}

StepReport ColumnRunner::end() {
  const uint64_t before = all_->bytes_sent(), received_before = all_->bytes_received();
  const Verdict verdict =
      read_verdict(worst_of_all(*all_, fault_word()), all_->size(), tensors_.size(), "exchange");
  StepReport report = column_.conclude(
      verdict, verdict.code == ErrorCode::kOk ? "" : tensors_[verdict.stream].name);
  report.between_bytes += all_->bytes_sent() - before;
  report.sent_bytes += all_->bytes_sent() - before;
  report.received_bytes += all_->bytes_received() - received_before;
  return report;
}

}  // namespace thinwire
