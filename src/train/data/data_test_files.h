// Small files for the tests of readers and data sets, made on the spot.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "thinwire/status.h"

namespace thinwire {

// A folder of its own for each test.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("thinwire" + std::to_string(::getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }

  std::filesystem::path folder_;
};

template <typename Call>
void expect_error(Call call, ErrorCode code, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "no error where '" << words << "' is expected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr(words));
  }
}

inline std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

inline std::string little_endian(uint32_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

inline std::string idx_images(uint32_t count) {
  std::string file = big_endian(0x803) + big_endian(count) + big_endian(2) + big_endian(2);
  for (uint32_t i = 0; i < count * 4; ++i) file += static_cast<char>(i);
  return file;
}

// Labels 0 1 2 ... 9 0 1 ..., but for the first.
inline std::string idx_labels(uint32_t count, char first = 0) {
  std::string file = big_endian(0x801) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) file += i == 0 ? first : static_cast<char>(i % 10);
  return file;
}

inline std::string cifar_record(char label, uint8_t red, uint8_t green, uint8_t blue) {
  std::string record(1, label);
  for (const uint8_t colour : {red, green, blue})
    record += std::string(1024, static_cast<char>(colour));
  return record;
}

// 16-bit PCM, one channel unless said.
inline std::string wav(const std::vector<int16_t>& samples, uint32_t rate = 8000,
                       uint32_t channels = 1) {
  std::string data;
  for (const int16_t sample : samples) data += little_endian(static_cast<uint16_t>(sample), 2);
  const auto size = static_cast<uint32_t>(data.size());
  return "RIFF" + little_endian(36 + size, 4) + "WAVEfmt " + little_endian(16, 4) +
         little_endian(1, 2) + little_endian(channels, 2) + little_endian(rate, 4) +
         little_endian(rate * 2 * channels, 4) + little_endian(2 * channels, 2) +
         little_endian(16, 2) + "data" + little_endian(size, 4) + data;
}

inline std::vector<int16_t> tone(double hertz, size_t count, double amplitude = 10000) {
  std::vector<int16_t> samples;
  for (size_t i = 0; i < count; ++i)
    samples.push_back(static_cast<int16_t>(
        amplitude * std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / 8000)));
  return samples;
}

inline std::string tar_entry(const std::string& name, const std::string& content, char type = '0') {
  std::string header(512, '\0');
  char digits[13];
  header.replace(0, name.size(), name);
  std::snprintf(digits, sizeof digits, "%011o", static_cast<unsigned>(content.size()));
  header.replace(124, 11, digits);
  header[156] = type;
  header.replace(257, 5, "ustar");
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(digits, sizeof digits, "%06o", sum);
  header.replace(148, 7, std::string(digits) + '\0');
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

inline const std::string kTarEnd(1024, '\0');

}  // namespace thinwire
