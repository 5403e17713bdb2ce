// Event files, which TensorBoard draws: numbers by name and step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace thinwire {

// Writes records of length, checksum (CRC-32C), bytes and checksum, whose bytes are messages
// `Event` of TensorFlow's event.proto. Only the few fields that numbers need are written, so that
// no protobuf is needed. Not for several threads.
class EventFile {
 public:
  // Begins a file of its own in `folder`. Of earlier files there, TensorBoard leaves out steps
  // after `resumed_step`. Throws Error(kIo).
  EventFile(const std::filesystem::path& folder, uint64_t resumed_step);

  using Scalars = std::vector<std::pair<std::string, double>>;
  void add(uint64_t step, const Scalars& scalars);
  void flush();

 private:
  void record(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

// Those that EventFile made in `folder`.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder);

}  // namespace thinwire
