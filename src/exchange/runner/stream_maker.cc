// StreamMaker: asks the device for its kernels, and falls back to the processor with a reason.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/runner/stream_maker.h"

#include <utility>

#include "codec/codec_schedule.h"
#include "exchange/wire/open_stream.h"

namespace thinwire {

StreamMaker::StreamMaker(const ExchangeOptions& options, const NamedCombine& combine, Store& store,
                         std::chrono::milliseconds patience)
    : options_(options), combine_(combine), store_(store) {
  if (options.device == nullptr) return;
  if (options.inside != 1 || options.columns != 1) {
    why_no_work_ = "inside and columns are not 1";
  } else if (options.compress_on == CompressOn::kProcessor) {
    why_no_work_ = "the processor was asked for";
  } else {
    try {
      work_ = std::make_shared<device::DeviceWork>(options.device);
      work_->set_patience(patience);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      why_no_work_ = error.what();
    }
  }
}

// Empty if it can be compressed in the device's memory. Whoever else looks at its values looks at
// the processor's.
std::string StreamMaker::why_staged(const PlannedStream& planned, const Section& section,
                                    const SectionRunner::StreamTerms& made_of) const {
  const Terms& terms = made_of.terms;
  if (work_ == nullptr) return why_no_work_;
  if (planned.plain) return "it is sent uncompressed";
  if (!terms.method->in_place)
    return "method " + std::string(terms.method->name) + " adds on the processor";
  if (combine_.rule->wants_rows()) return "combine = " + combine_.canonical + " is computed there";
  if (terms.grouping == Grouping::kGlobal) return "a global threshold is chosen on the processor";
  if (!CodecSchedule::parse(section.options.codec).value().is_constant() ||
      made_of.regime != nullptr)
    return "its codec follows a schedule";
  if (section.options.observe) return "it is observed";
  if (options_.results == Results::kShard) return "results are shards, which owners add";
  return lack_of_device_form(terms, work_);
}

// Null, and why, where the device has no room for it, or does not compile a kernel. What the store
// has of it is handed back to whoever opens it next.
std::unique_ptr<ActiveStream> StreamMaker::make_on_device(const PlannedStream& planned,
                                                          size_t index, const Section& section,
                                                          const SectionRunner::StreamTerms& made_of,
                                                          std::string& why) const {
  try {
    auto stream = std::make_unique<ActiveStream>(planned, index, made_of.terms, section.options,
                                                 store_, work_);
    stream->rehearse();
    return stream;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kMismatch) throw;
    why = error.what();
    return nullptr;
  }
}

std::unique_ptr<ActiveStream> StreamMaker::make(const PlannedStream& planned, size_t index,
                                                const Section& section,
                                                const SectionRunner::StreamTerms& made_of) const {
  std::string why = why_staged(planned, section, made_of);
  const bool wanted = options_.compress_on == CompressOn::kDevice && options_.device != nullptr;
  if (options_.device != nullptr && why.empty())
    if (auto stream = make_on_device(planned, index, section, made_of, why)) return stream;
  if (wanted && !planned.plain)
    throw Error(ErrorCode::kUnsupported, "exchange: stream '" + planned.spec.name +
                                             "' is not compressed on " + options_.device->name() +
                                             ": " + why +
                                             "; compress_on = kAuto stages what cannot be");
  auto stream =
      std::make_unique<ActiveStream>(planned, index, made_of.terms, section.options, store_);
  stream->set_why_staged(std::move(why));
  return stream;
}

void StreamMaker::begin(std::chrono::milliseconds patience) noexcept {
  if (work_ == nullptr) return;
  work_->set_patience(patience);
  fetched_before_ = work_->bytes_fetched();
  uploaded_before_ = work_->bytes_sent();
}

void StreamMaker::report(StepReport& report) const noexcept {
  if (work_ == nullptr) return;
  report.device_to_host_bytes = work_->bytes_fetched() - fetched_before_;
  report.host_to_device_bytes = work_->bytes_sent() - uploaded_before_;
}

}  // namespace thinwire
