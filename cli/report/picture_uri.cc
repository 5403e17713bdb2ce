// Writes the simplest picture file that every browser reads, and its bytes as text.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/picture_uri.h"

#include <cstdint>
#include <string_view>

namespace thinwire::cli {
namespace {

void put(std::string& file, uint32_t value, int size) {
  for (int i = 0; i < size; ++i) file += static_cast<char>(value >> (8 * i));
}

// Rows from the bottom up, blue first, each filled up to a multiple of four bytes.
std::string bmp(const SamplePicture& picture) {
  const uint32_t row = (3 * picture.width + 3) / 4 * 4;
  constexpr uint32_t kHeaders = 14 + 40;
  std::string file = "BM";
  put(file, kHeaders + row * picture.height, 4);
  put(file, 0, 4);
  put(file, kHeaders, 4);
  put(file, 40, 4);
  put(file, picture.width, 4);
  put(file, picture.height, 4);
  put(file, 1, 2);   // planes
  put(file, 24, 2);  // bits per pixel
  for (const uint32_t value : {0u, row * picture.height, 2835u, 2835u, 0u, 0u}) put(file, value, 4);
  for (uint32_t y = picture.height; y-- > 0;) {
    for (uint32_t x = 0; x < picture.width; ++x) {
      const uint8_t* pixel =
          picture.values.data() + size_t{picture.channels} * (size_t{y} * picture.width + x);
      for (uint32_t colour = 3; colour-- > 0;)
        file += static_cast<char>(pixel[picture.channels == 3 ? colour : 0]);
    }
    file.append(row - 3 * picture.width, '\0');
  }
  return file;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < group.size() ? static_cast<uint8_t>(group[k]) : 0);
    for (size_t k = 0; k < 4; ++k)
      text += k <= group.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

}  // namespace

std::string picture_uri(const SamplePicture& picture) {
  return "data:image/bmp;base64," + base64(bmp(picture));
}

}  // namespace thinwire::cli
