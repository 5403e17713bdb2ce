// RegionCoder: writes and reads regions as sparse payloads, or as dense ones 512 values at a time.
// SPDX-License-Identifier: Apache-2.0
#include "exchange/owner/region_coder.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "codec/sparse_payload.h"
#include "core/bytes.h"
#include "kernel/axpy.h"

namespace thinwire {
namespace {

const char* dense_name(ValueFormat format) {
  switch (format) {
    case ValueFormat::kFp32:
      return "fp32";
    case ValueFormat::kFp16:
      return "fp16";
    case ValueFormat::kBf16:
      return "bf16";
    default:
      return nullptr;
  }
}

}  // namespace

RegionCoder::RegionCoder(ValueFormat format)
    : format_(format == ValueFormat::kMean ? ValueFormat::kSign : format),
      sparse_id_(make_codec("topk").value().codec->info().id),
      dense_id_(sparse_id_) {
  if (dense_name(format_) == nullptr) return;
  const NamedCodec dense = make_codec(dense_name(format_)).value();
  const StreamSpec one = single_tensor({.name = "value", .shape = {1}});
  dense_id_ = dense.codec->info().id;
  width_ = dense.codec->max_encoded_size(one);
  dense_encoder_ = dense.codec->make_encoder(one);
  dense_decoder_ = dense.codec->make_decoder(one);
}

bool RegionCoder::is_dense(size_t count, size_t kept) const noexcept {
  return width_ > 0 && kept > 0 && max_sparse_size(count, kept, format_) > width_ * count;
}

size_t RegionCoder::max_size(size_t count, size_t kept) const noexcept {
  const size_t sparse = max_sparse_size(count, kept, format_);
  return width_ > 0 ? std::min(sparse, std::max(width_ * count, max_sparse_size(count, 0, format_)))
                    : sparse;
}

size_t RegionCoder::write(size_t count, std::span<const uint32_t> offsets,
                          std::span<const float> values, std::span<std::byte> out,
                          std::span<float> left) const {
  if (!is_dense(count, offsets.size())) return write_sparse(offsets, values, format_, out, left);
  std::array<float, kValueBlock> block;
  size_t next = 0;  // of the offsets
  for (size_t begin = 0; begin < count; begin += block.size()) {
    const auto some = std::span(block).first(std::min(block.size(), count - begin));
    std::fill(some.begin(), some.end(), 0.0f);
    const size_t first = next;
    for (; next < offsets.size() && offsets[next] < begin + some.size(); ++next)
      some[offsets[next] - begin] = values[next];
    write_all(some, out.subspan(begin * width_));
    for (size_t i = first; i < next && !left.empty(); ++i) left[i] = some[offsets[i] - begin];
  }
  return count * width_;
}

size_t RegionCoder::write_at(std::span<const uint32_t> offsets, std::span<float> values,
                             std::span<std::byte> out) const {
  return write_sparse_at(offsets, values, format_, out, values);
}

size_t RegionCoder::write_all(std::span<float> values, std::span<std::byte> out) const {
  return dense_encoder_->encode({.values = values}, {}, out, values).size;
}

size_t RegionCoder::kept(uint8_t id, std::span<const std::byte> payload,
                         size_t count) const noexcept {
  if (width_ > 0 && id == dense_id_) return count;
  return ByteReader(payload).get<uint32_t>();
}

Status RegionCoder::add(uint8_t id, std::span<const std::byte> payload,
                        std::span<float> sum) const {
  if (width_ > 0 && id == dense_id_) return dense_decoder_->decode_add(payload, 1.0f, sum);
  return add_sparse(payload, format_, 1.0f, sum);
}

Status RegionCoder::visit(uint8_t id, std::span<const std::byte> payload, size_t count,
                          const KeptVisitor& visitor) const {
  if (width_ == 0 || id != dense_id_) return visit_sparse(payload, format_, count, visitor);
  if (payload.size() != count * width_)
    return Status::fail(ErrorCode::kBadLength, "region: payload length does not match the count");
  std::array<float, kValueBlock> block;
  std::array<uint32_t, kValueBlock> offsets;
  for (size_t begin = 0; begin < count; begin += block.size()) {
    const auto some = std::span(block).first(std::min(block.size(), count - begin));
    const auto at = std::span(offsets).first(some.size());
    kernel::fill(some, -0.0f);
    std::iota(at.begin(), at.end(), static_cast<uint32_t>(begin));
    const auto bytes = payload.subspan(begin * width_, some.size() * width_);
    if (Status status = dense_decoder_->decode_add(bytes, 1.0f, some); !status) return status;
    visitor(at, some);
  }
  return Status::ok();
}

}  // namespace thinwire
