// Reads WAV bytes in memory by libsndfile.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/wav_reader.h"

#include <sndfile.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "thinwire/status.h"

namespace thinwire {
namespace {

struct Cursor {
  std::span<const std::byte> bytes;
  sf_count_t at = 0;
};

// What libsndfile reads through; `user` is a Cursor.
SF_VIRTUAL_IO memory_io() {
  SF_VIRTUAL_IO io = {};
  io.get_filelen = [](void* user) {
    return static_cast<sf_count_t>(static_cast<Cursor*>(user)->bytes.size());
  };
  io.seek = [](sf_count_t offset, int whence, void* user) {
    auto& cursor = *static_cast<Cursor*>(user);
    const auto size = static_cast<sf_count_t>(cursor.bytes.size());
    const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? cursor.at : size;
    return cursor.at = std::clamp<sf_count_t>(base + offset, 0, size);
  };
  io.read = [](void* out, sf_count_t count, void* user) {
    auto& cursor = *static_cast<Cursor*>(user);
    const auto left = static_cast<sf_count_t>(cursor.bytes.size()) - cursor.at;
    const sf_count_t part = std::clamp<sf_count_t>(count, 0, left);
    std::memcpy(out, cursor.bytes.data() + cursor.at, static_cast<size_t>(part));
    cursor.at += part;
    return part;
  };
  io.write = [](const void*, sf_count_t, void*) { return sf_count_t{0}; };
  io.tell = [](void* user) { return static_cast<Cursor*>(user)->at; };
  return io;
}

}  // namespace

std::vector<float> read_wav(std::span<const std::byte> file, int rate, const std::string& origin) {
  const auto fail = [&](const std::string& fault) {
    return Error(ErrorCode::kCorrupt, origin + ": " + fault);
  };
  SF_VIRTUAL_IO io = memory_io();
  Cursor cursor{.bytes = file};
  SF_INFO info = {};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> sound(
      sf_open_virtual(&io, SFM_READ, &info, &cursor), &sf_close);
  if (sound == nullptr) throw fail(sf_strerror(nullptr));
  if (info.samplerate != rate || info.channels != 1)
    throw fail(std::to_string(info.channels) + " channels at " + std::to_string(info.samplerate) +
               " Hz, where one at " + std::to_string(rate) + " is expected");
  // A header may claim any length; no sound has more samples than bytes here.
  if (info.frames <= 0 || static_cast<uint64_t>(info.frames) > file.size())
    throw fail("holds no sound of the length that it states");
  std::vector<float> samples(static_cast<size_t>(info.frames));
  if (sf_readf_float(sound.get(), samples.data(), info.frames) != info.frames)
    throw fail("ends early");
  return samples;
}

}  // namespace thinwire
