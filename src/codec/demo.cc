// demo: the largest coefficients of cosine transforms [DeMo: Peng, Quesnelle and Kingma,
// arXiv:2411.19870].
//
//   the stream's tensors are cut into tiles of chunk x chunk values, vectors into pieces of chunk
//   (dct_tiles.h)
//   C = the DCT-II of a tile,   the density x tile largest |C| are sent, at least one,
//   decode = the inverse of these
//
// A few coefficients of a tile change all of its values, so that nearly every weight moves in every
// step. The published setting is chunk 64 and 32 coefficients of each tile of 4096 values. The
// published program cuts each extent into equal parts by its largest divisor up to 64, and has no
// tensors of more than two dimensions; here the last tile is smaller.
//
// The memory is residual with beta 0.999, the decoupled momentum: m <- beta m + g, and what is sent
// is taken out of m. The update is the sign of the mean, which is the optimiser's part (signsgd).
//
// Equal magnitudes are taken from the lowest position up, zeros never. Coefficients are at most
// 2^86 in magnitude, so that neither a decoded value nor the remainder overflows; values above 1e21
// may be sent in part.
//
// Payload: as in sparse_payload.h, of coefficients. A decoder refuses magnitudes above 2^87, which
// no format's rounding reaches.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/dct_tiles.h"
#include "codec/sparse_codec.h"
#include "core/aligned.h"
#include "kernel/memory_passes.h"

namespace thinwire {
namespace {

const CodecInfo kInfo{.name = "demo",
                      .id = 33,
                      .summary = "the largest coefficients of cosine transforms",
                      .paper = "DeMo, 2024, arXiv:2411.19870",
                      .selective = true,
                      .feedback = "residual:beta=0.999"};

// The largest values whose transforms are far from overflow; larger ones are multiplied by kSmall
// before.
constexpr float kLarge = 0x1p70f, kSmall = 0x1p-24f;
constexpr float kMostSent = 0x1p86f, kMostRead = 0x1p87f;

// All that a payload keeps.
struct Kept {
  std::vector<uint32_t> positions;
  std::vector<float> values;

  Status read(std::span<const std::byte> payload, ValueFormat format, size_t count) {
    positions.clear();
    values.clear();
    bool small = true;
    const Status status =
        visit_sparse(payload, format, count, [&](auto at, std::span<const float> some) {
          positions.insert(positions.end(), at.begin(), at.end());
          values.insert(values.end(), some.begin(), some.end());
          for (const float value : some) small = small && std::abs(value) <= kMostRead;
        });
    if (!status || small) return status;
    return Status::fail(ErrorCode::kCorrupt, "demo: a coefficient is too large");
  }
};

// What one thread needs to decode.
struct Reading {
  Kept kept;
  DctTiles::Scratch scratch;
};

// Calls each(begin, row) for the rows of all tiles of which something is kept: where a row begins
// in the stream, and its values.
template <typename Each>
void decode_rows(const DctTiles& tiles, Reading& reading, const Each& each) {
  const Kept& kept = reading.kept;
  size_t next = 0;
  tiles.each([&](const DctTile& tile) {
    const size_t from = next;
    while (next < kept.positions.size() && kept.positions[next] < tile.first + tile.count()) ++next;
    if (from == next) return;
    const auto values =
        tiles.inverse(tile, std::span(kept.positions).subspan(from, next - from),
                      std::span(kept.values).subspan(from, next - from), reading.scratch);
    for (size_t row = 0; row < tile.rows; ++row)
      each(tile.begin + row * tile.stride, values.subspan(row * tile.columns, tile.columns));
  });
}

class DemoEncoder final : public Encoder {
 public:
  DemoEncoder(const StreamSpec& stream, size_t chunk, double density, ValueFormat format)
      : tiles_(stream, chunk), density_(density), format_(format), coefficients_(stream.count()) {}

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    const auto values = signal.values;
    positions_.clear();
    size_t target = 0;
    tiles_.each([&](const DctTile& tile) {
      const auto own = std::span(coefficients_).subspan(tile.first, tile.count());
      transform(values, tile, own);
      const size_t most = kept_target(density_, tile.count());
      take_largest(own, most, static_cast<uint32_t>(tile.first));
      target += most;
    });
    const size_t size = write_sparse_at(positions_, coefficients_, format_, out);
    if (!rest.empty()) subtract(values, out.first(size), rest);
    return {.size = size, .kept = positions_.size(), .target = target};
  }

 private:
  void transform(std::span<const float> values, const DctTile& tile, std::span<float> to) {
    float largest = 0;
    for (size_t row = 0; row < tile.rows; ++row)
      for (const float value : values.subspan(tile.begin + row * tile.stride, tile.columns))
        largest = std::max(largest, std::abs(value));
    if (largest <= kLarge)
      return tiles_.forward(tile, values.subspan(tile.begin), tile.stride, to, reading_.scratch);
    small_.clear();
    for (size_t row = 0; row < tile.rows; ++row)
      for (const float value : values.subspan(tile.begin + row * tile.stride, tile.columns))
        small_.push_back(value * kSmall);
    tiles_.forward(tile, small_, tile.columns, to, reading_.scratch);
    for (float& value : to)
      value = std::clamp(value, -kMostSent * kSmall, kMostSent * kSmall) / kSmall;
  }

  // Appends the positions of the `most` largest of a tile, the first of which is `first`.
  void take_largest(std::span<const float> own, size_t most, uint32_t first) {
    const auto bits = [](float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; };
    magnitudes_.resize(own.size());
    std::transform(own.begin(), own.end(), magnitudes_.begin(), bits);
    const auto kth = magnitudes_.begin() + static_cast<std::ptrdiff_t>(most - 1);
    std::nth_element(magnitudes_.begin(), kth, magnitudes_.end(), std::greater<>());
    const uint32_t least = *kth;
    const auto above = std::count_if(magnitudes_.begin(), kth, [&](auto m) { return m > least; });
    size_t ties = least > 0 ? most - static_cast<size_t>(above) : 0;
    for (size_t i = 0; i < own.size(); ++i) {
      const uint32_t here = bits(own[i]);
      const bool tie = here == least && ties > 0;
      if (here > least || tie) positions_.push_back(first + static_cast<uint32_t>(i));
      ties -= tie;
    }
  }

  // What a receiver decodes, formats and all.
  void subtract(std::span<const float> values, std::span<const std::byte> payload,
                std::span<float> rest) {
    if (rest.data() != values.data()) std::copy(values.begin(), values.end(), rest.begin());
    reading_.kept.read(payload, format_, values.size()).or_throw();
    decode_rows(tiles_, reading_, [&](size_t begin, std::span<const float> row) {
      const auto left = rest.subspan(begin, row.size());
      kernel::weighted_sum(1, left, -1, row, left);
    });
  }

  const DctTiles tiles_;
  const double density_;
  const ValueFormat format_;
  AlignedVector<float> coefficients_;
  std::vector<uint32_t> magnitudes_;
  std::vector<float> small_;
  std::vector<uint32_t> positions_;
  Reading reading_;
};

class DemoDecoder final : public Decoder {
 public:
  DemoDecoder(const StreamSpec& stream, size_t chunk, ValueFormat format)
      : tiles_(stream, chunk), format_(format) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, "demo", payload, weight, out);
    thread_local Reading reading;  // decoders are shared between threads
    if (Status status = reading.kept.read(payload, format_, out.size()); !status) return status;
    decode_rows(tiles_, reading, [&](size_t begin, std::span<const float> row) {
      const auto to = out.subspan(begin, row.size());
      kernel::weighted_sum(1, to, weight, row, to);
    });
    return Status::ok();
  }

 private:
  const DctTiles tiles_;
  const ValueFormat format_;
};

class DemoCodec final : public Codec {
 public:
  explicit DemoCodec(const Options& options)
      : chunk_(static_cast<size_t>(options.integer("chunk"))),
        density_(options.number("density")),
        format_(value_format(options)) {}

  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    require_sparse_stream(kInfo.name, stream);
    return max_sparse_size(stream.count(), target(stream), format_);
  }
  size_t target(const StreamSpec& stream) const override {
    size_t sum = 0;
    each_tile(matrices_of(stream), chunk_,
              [&](const DctTile& tile) { sum += kept_target(density_, tile.count()); });
    return sum;
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    require_sparse_stream(kInfo.name, stream);
    return std::make_unique<DemoEncoder>(stream, chunk_, density_, format_);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    require_sparse_stream(kInfo.name, stream);
    return std::make_unique<DemoDecoder>(stream, chunk_, format_);
  }

 private:
  const size_t chunk_;
  const double density_;
  const ValueFormat format_;
};

}  // namespace

const CodecEntry& demo_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {{.name = "density",
                   .type = OptionType::kNumber,
                   .fallback = "0.0078125",
                   .min = 1e-6,
                   .max = 1,
                   .unit = "fraction",
                   .help = "coefficients of a tile to send; 32 of 4096 is 0.0078125"},
                  {.name = "chunk",
                   .type = OptionType::kInteger,
                   .fallback = "64",
                   .min = 2,
                   .max = 256,
                   .unit = "values",
                   .help = "rows and columns of a tile, and length of a vector's pieces"},
                  value_format_option()},
      .make = [](const Options& options) { return std::make_unique<DemoCodec>(options); }};
  return entry;
}

}  // namespace thinwire
