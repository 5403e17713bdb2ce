// StreamMaker: decides where each stream is compressed, in a device's memory or by the processor.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/device_work.h"
#include "exchange/layout/plan.h"
#include "exchange/rules/combine.h"
#include "exchange/runner/section_runner.h"
#include "exchange/terms/sections.h"
#include "exchange/wire/active_stream.h"
#include "thinwire/exchange.h"
#include "thinwire/store.h"

namespace thinwire {

// Has the device's queue of work, if the exchange has a device that runs kernels. Used by one
// thread at a time.
class StreamMaker {
 public:
  // `options`, `combine` and `store` outlive it. Waits for the device at most `patience` at a time.
  StreamMaker(const ExchangeOptions& options, const NamedCombine& combine, Store& store,
              std::chrono::milliseconds patience);

  // Null if no stream is compressed on a device.
  const SharedWork& work() const noexcept { return work_; }

  // The exchange's stream number `index`, which says why it is compressed by the processor. Throws
  // Error(kUnsupported) if compress_on asks for the device, and the stream cannot be compressed
  // there.
  std::unique_ptr<ActiveStream> make(const PlannedStream& planned, size_t index,
                                     const Section& section,
                                     const SectionRunner::StreamTerms& made_of) const;

  // Between begin and report, bytes that are copied between host and device count for one step.
  void begin(std::chrono::milliseconds patience) noexcept;
  void report(StepReport& report) const noexcept;

 private:
  std::string why_staged(const PlannedStream& planned, const Section& section,
                         const SectionRunner::StreamTerms& made_of) const;
  std::unique_ptr<ActiveStream> make_on_device(const PlannedStream& planned, size_t index,
                                               const Section& section,
                                               const SectionRunner::StreamTerms& made_of,
                                               std::string& why) const;

  const ExchangeOptions& options_;
  const NamedCombine& combine_;
  Store& store_;
  SharedWork work_;
  std::string why_no_work_;  // of a device on which nothing is compressed
  uint64_t fetched_before_ = 0, uploaded_before_ = 0;
};

}  // namespace thinwire
