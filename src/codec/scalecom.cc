// scalecom: the k largest magnitudes of one rank, which all ranks send in that step [Chen et al.,
// NeurIPS 2020, arXiv:2104.11125: CLT-k].
//
//   I = positions of the k largest |x| of the leader, rank (step mod n);
//   decoded = mean of x on I, else 0
//
// With one set of positions for all, sums of what is sent are sent sums: values add up position by
// position, and a rank's traffic does not grow with the ranks. It works as far as the ranks' values
// are alike, for which their residuals are filtered (feedback/lowpass.cc). Encoded by itself,
// without rounds, it is topk. Biased: do not use it without feedback.
//
// Rounds, of method shared-index:
//
//   0  from the root   u32 kept, positions[kept] as in kernel/position_code.h
//   1  mean            f32 values[k] at these positions, zeros after the first `kept`
//
// Payload: as in sparse_payload.h, in fp32.
//
// The leader reads its values as topk does; the others only where they send.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "codec/builtin.h"
#include "codec/sparse_codec.h"
#include "core/bytes.h"
#include "kernel/position_code.h"
#include "kernel/top_selector.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "scalecom",
                          .id = 12,
                          .summary = "the largest magnitudes of one rank in turn, from all ranks",
                          .paper = "ScaleCom, NeurIPS 2020, arXiv:2104.11125",
                          .sparse = true,
                          .agreed = Agreed::kPositions,
                          .feedback = "lowpass"};

size_t max_offer(size_t count, size_t target) {
  return sizeof(uint32_t) + kernel::max_position_bytes(count, target);
}

class ScalecomEncoder final : public Encoder {
 public:
  ScalecomEncoder(size_t count, size_t target)
      : count_(count), target_(target), selector_(count, target) {}

  size_t offer(size_t round, const Signal& signal, const Call& /*call*/,
               std::span<std::byte> out) override {
    if (round == 1) return offer_values(signal, out);
    const auto positions = selector_.select(signal.values);
    ByteWriter(out).put(static_cast<uint32_t>(positions.size()));
    return sizeof(uint32_t) + kernel::pack_positions(positions, out.subspan(sizeof(uint32_t)));
  }

  Status adopt(size_t round, std::span<const std::byte> combined) override {
    agreed_ = true;
    if (round == 0) return adopt_positions(combined);
    values_.resize(positions_.size());
    const auto to = std::as_writable_bytes(std::span(values_));
    std::copy_n(combined.begin(), to.size(), to.begin());  // may be none
    return Status::ok();
  }

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    if (!agreed_) choose(signal.values);
    if (!rest.empty() && rest.data() != signal.values.data())
      std::copy(signal.values.begin(), signal.values.end(), rest.begin());
    for (const uint32_t position : positions_)
      if (!rest.empty()) rest[position] = 0;  // of its own all was sent
    return {.size = write_sparse(positions_, values_, ValueFormat::kFp32, out),
            .kept = positions_.size(),
            .target = target_,
            .positions = positions_};
  }

  void commit() override { agreed_ = false; }
  void rollback() override { agreed_ = false; }

 private:
  size_t offer_values(const Signal& signal, std::span<std::byte> out) {
    ByteWriter writer(out);
    for (const uint32_t position : positions_) writer.put(signal.values[position]);
    while (writer.written() < target_ * sizeof(float)) writer.put(0.0f);
    return writer.written();
  }

  Status adopt_positions(std::span<const std::byte> offered) {
    positions_.clear();
    ByteReader reader(offered);
    const size_t kept = reader.get<uint32_t>();
    if (!reader.ok() || kept > target_)
      return Status::fail(ErrorCode::kCorrupt, "scalecom: more positions than the density allows");
    kernel::PositionReader positions(reader.take(reader.remaining()), count_, kept);
    for (auto at = positions.next(); !at.empty(); at = positions.next())
      positions_.insert(positions_.end(), at.begin(), at.end());
    if (positions.done()) return Status::ok();
    positions_.clear();
    return Status::fail(ErrorCode::kCorrupt,
                        "scalecom: positions contradict the count or the length");
  }

  void choose(std::span<const float> values) {
    const auto positions = selector_.select(values);
    positions_.assign(positions.begin(), positions.end());
    values_.clear();
    for (const uint32_t position : positions_) values_.push_back(values[position]);
  }

  size_t count_;
  size_t target_;  // k
  kernel::TopSelector selector_;
  std::vector<uint32_t> positions_;  // I
  std::vector<float> values_;        // what is decoded there
  bool agreed_ = false;
};

class ScalecomCodec final : public SparseCodec {
 public:
  explicit ScalecomCodec(const Options& options)
      : SparseCodec(kInfo, ValueFormat::kFp32), density_(options.number("density")) {}

  std::vector<Round> rounds(const StreamSpec& stream, bool /*odd_step*/) const override {
    const size_t count = stream.count(), target = most_kept(count);
    return {{.combine = Round::Combine::kFromRoot, .size = max_offer(count, target)},
            {.combine = Round::Combine::kMean, .size = target * sizeof(float)}};
  }

 private:
  size_t wanted(size_t count) const noexcept override { return kept_target(density_, count); }
  size_t most_kept(size_t count) const noexcept override { return wanted(count); }
  std::unique_ptr<Encoder> encoder_of(size_t count) const override {
    return std::make_unique<ScalecomEncoder>(count, most_kept(count));
  }

  double density_;
};

}  // namespace

const CodecEntry& scalecom_entry() {
  static const CodecEntry entry{
      .info = kInfo, .options = {density_option()}, .make = [](const Options& options) {
        return std::make_unique<ScalecomCodec>(options);
      }};
  return entry;
}

}  // namespace thinwire
