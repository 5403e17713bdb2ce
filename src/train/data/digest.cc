// SHA-1 and SHA-256 from OpenSSL's libcrypto.
// SPDX-License-Identifier: Apache-2.0
#include "train/data/digest.h"

#include <openssl/evp.h>

#include <array>

#include "thinwire/status.h"

namespace thinwire {

std::string digest_of(std::span<const std::byte> bytes, DigestKind kind) {
  const EVP_MD* method = kind == DigestKind::kSha1 ? EVP_sha1() : EVP_sha256();
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, method, nullptr) != 1)
    throw Error(ErrorCode::kUnsupported, "libcrypto refuses to compute a checksum");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

}  // namespace thinwire
