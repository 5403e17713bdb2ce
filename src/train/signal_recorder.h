// SignalRecorder: writes encoders' inputs for studies: out/signals/step-NNNNNNNN.safetensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "thinwire/codec.h"
#include "thinwire/state.h"
#include "thinwire/stream.h"

namespace thinwire {

// Copies the signals of every `every`-th step and writes them once the step has ended. Arrays are
// "<stream>/values" and, where the step's own part differs from them, "<stream>/fresh"; the file's
// metadata says which tensors the streams are made of.
class SignalRecorder {
 public:
  // Makes the folder. REQUIRES: every > 0. Throws Error(kIo).
  SignalRecorder(std::filesystem::path folder, uint64_t every);

  // ExchangeOptions::observe; on the exchange's thread.
  void observe(const StreamSpec& stream, const Signal& signal, const Call& call);

  // The step has ended on every thread: what was observed is written, or forgotten when it was
  // skipped. Throws Error(kIo).
  void end_step(bool skipped);

 private:
  std::filesystem::path folder_;
  uint64_t every_;
  uint64_t step_ = 0;
  std::map<std::string, StreamSpec> streams_;  // of the step under way
  StateArrays arrays_;
};

}  // namespace thinwire
