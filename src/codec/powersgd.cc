// powersgd: a matrix as the product of two thin ones [Vogels et al., NeurIPS 2019].
//
//   M: a tensor of shape (a, ...) as a rows of b values;  Q: b x r, from the step before
//   P = mean over ranks of M Q;  P^ = orthonormal columns of P;  Q <- mean over ranks of M^T P^
//   decode = P^ Q^T
//
// The mean over ranks of M is projected on the columns of P^: one step of power iteration a step,
// since Q is kept. What ranks add up are factors, r (a + b) floats a tensor. `rest` is M - decode,
// the paper's convention: a rank remembers what the mean lacks. Its mean over ranks is mean(M) -
// decode, as in the other convention.
//
// With `alternate` each step renews one factor, even steps P and odd steps Q, and the other, made
// orthonormal, stays: decode = P Q^^T with P = mean M Q^, then P^ Q^T with Q = mean M^T P^ [Zhang
// et al., arXiv:2306.08881]. The very first step projects on a random Q^; the authors of PowerSGD,
// whose package alternates too, renew the other first and never use the Q that they start with.
//
// Tensors of fewer than two dimensions, and those that factors would not make `min_compression`
// times smaller, travel as they are. r is at most min(a, b). Columns of P that depend on others are
// dropped (a zero gradient has no others); columns of Q that are dropped, or were never there, are
// drawn from the seed, the stream and the step, so that they are the same on all ranks. So nothing
// is divided by zero, and no column is lost for good.
//
// Columns of P^ and Q^ have a power of two for their norm (thin_basis.h), so that no product
// overflows where M does not. Where |P^| |Q|^T could, Q is halved until it cannot: values above
// 2^126 / (r sqrt(a)) may shrink.
//
// Payload, per tensor in order, f32: a r values of P, column after column, and b r of Q; or the
// values.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "codec/builtin.h"
#include "codec/checked_add.h"
#include "codec/codec_random.h"
#include "codec/factor_layout.h"
#include "codec/thin_basis.h"
#include "core/aligned.h"
#include "core/bytes.h"
#include "kernel/add_floats.h"
#include "kernel/axpy.h"
#include "kernel/thin_products.h"

namespace thinwire {
namespace {

using kernel::ThinShape;

constexpr CodecInfo kInfo{.name = "powersgd",
                          .id = 32,
                          .summary = "matrices as products of two thin ones",
                          .paper = "PowerSGD, NeurIPS 2019, arXiv:1905.13727",
                          .fixed_size = true,
                          .agreed = Agreed::kFactors};

struct Settings {
  size_t rank = 0;
  double min_compression = 0;
  bool alternate = false;
  bool warm_start = true;
};

// |P Q^T| is at most this, and no partial sum of it is larger.
double bound(std::span<const float> p, std::span<const float> q, const ThinShape& shape) {
  double total = 0;
  for (size_t c = 0; c < shape.rank; ++c) {
    double most_p = 0, most_q = 0;
    for (const float x : p.subspan(c * shape.rows, shape.rows))
      most_p = std::max(most_p, std::abs(double{x}));
    for (const float x : q.subspan(c * shape.columns, shape.columns))
      most_q = std::max(most_q, std::abs(double{x}));
    total += most_p * most_q;
  }
  return total;
}

constexpr double kMaxFloat = std::numeric_limits<float>::max();

class PowersgdEncoder final : public Encoder {
 public:
  PowersgdEncoder(const Settings& settings, const StreamSpec& stream)
      : settings_(settings),
        name_(stream.name),
        layout_(layout_of(stream, settings.rank, settings.min_compression)),
        raw_(layout_.end.raw),
        p_(layout_.end.p),
        q_(layout_.end.q),
        warm_p_(settings.alternate ? layout_.end.p : 0),
        warm_q_(layout_.end.q) {
    size_t largest = 0;
    for (const FactorPiece& piece : layout_.pieces)
      largest = std::max({largest, piece.shape.left(), piece.shape.right()});
    scaled_.resize(largest);
  }

  size_t offer(size_t round, const Signal& signal, const Call& call,
               std::span<std::byte> out) override {
    odd_ = call.step % 2 == 1;
    if (round == 0) begin_step(call);
    ByteWriter writer(out);
    for (const FactorPiece& piece : layout_.pieces) {
      if (piece.is_raw()) {
        if (round == 0)
          writer.put_bytes(std::as_bytes(signal.values.subspan(piece.begin, piece.shape.columns)));
        continue;
      }
      const auto values = signal.values.subspan(piece.begin, piece.shape.count());
      const std::span<float> renewed = renews_p(round) ? p_of(piece) : q_of(piece);
      if (renews_p(round))
        kernel::times_right(values, scaled(q_of(piece), piece.shape.columns), piece.shape, renewed);
      else
        kernel::times_left(values, scaled(p_of(piece), piece.shape.rows), piece.shape, renewed);
      writer.put_bytes(std::as_bytes(renewed));
    }
    return writer.written();
  }

  Status adopt(size_t round, std::span<const std::byte> combined) override {
    agreed_ = true;
    ByteReader reader(combined);
    for (const FactorPiece& piece : layout_.pieces) {
      if (piece.is_raw()) {
        if (round == 0) read(reader, std::span(raw_).subspan(piece.raw, piece.shape.columns));
        continue;
      }
      read(reader, renews_p(round) ? p_of(piece) : q_of(piece));
      if (renews_p(round) && !settings_.alternate) basis_.make(p_of(piece), piece.shape.rows);
    }
    return Status::ok();
  }

  Encoded encode(const Signal& signal, const Call& call, std::span<std::byte> out,
                 std::span<float> rest) override {
    next_is_shared_ = std::exchange(agreed_, false);
    if (!next_is_shared_) agree_alone(signal, call);
    encoded_ = true;
    const float share = next_is_shared_ ? call.share() : 1.0f;
    ByteWriter writer(out);
    for (const FactorPiece& piece : layout_.pieces) {
      if (piece.is_raw()) {
        const auto mean = std::span<const float>(raw_).subspan(piece.raw, piece.shape.columns);
        writer.put_bytes(std::as_bytes(mean));
        for (size_t i = 0; !rest.empty() && i < mean.size(); ++i)
          rest[piece.begin + i] = signal.values[piece.begin + i] - share * mean[i];
        continue;
      }
      const std::span<float> p = p_of(piece), q = q_of(piece);
      for (double most = bound(p, q, piece.shape); most > kMaxFloat / 2; most /= 2)
        for (float& x : q) x *= 0.5f;
      writer.put_bytes(std::as_bytes(p));
      writer.put_bytes(std::as_bytes(q));
      if (rest.empty()) continue;
      const size_t count = piece.shape.count();
      const auto left = rest.subspan(piece.begin, count);
      kernel::subtract_product(signal.values.subspan(piece.begin, count), p, q, piece.shape, left);
      if (share != 1) kernel::add_product(p, q, piece.shape, 1 - share, left);
    }
    return {.size = writer.written(), .kept = signal.values.size()};
  }

  void commit() override {
    if (encoded_ && settings_.warm_start) {
      std::swap(warm_q_, q_);
      if (settings_.alternate) std::swap(warm_p_, p_);
      shared_ = next_is_shared_;
    }
    rollback();
  }
  void rollback() override { agreed_ = encoded_ = false; }

  StateArrays save() const override {
    if (!settings_.warm_start) return {};
    const int64_t rank[1] = {static_cast<int64_t>(settings_.rank)};
    const OnResize kind = shared_ ? OnResize::kShared : OnResize::kCopy;
    StateArrays arrays = {make_state("rank", rank, kind),
                          make_state("q", std::span<const float>(warm_q_), kind)};
    if (settings_.alternate)
      arrays.push_back(make_state("p", std::span<const float>(warm_p_), kind));
    return arrays;
  }
  bool shares_state() const noexcept override { return settings_.warm_start && shared_; }
  bool may_share_state() const noexcept override { return settings_.warm_start; }

  // Factors of another rank are of no use: they start afresh, and nothing that is owed is lost.
  Status load(const StateArrays& arrays) override {
    if (!settings_.warm_start) return Status::ok();
    int64_t rank[1] = {};
    if (Status status = copy_state(arrays, "rank", rank); !status) return status;
    AlignedVector<float> p(warm_p_.size()), q(warm_q_.size());
    if (rank[0] == static_cast<int64_t>(settings_.rank)) {
      if (Status status = copy_state(arrays, "q", std::span<float>(q)); !status) return status;
      // Without `alternate` P is not kept.
      if (settings_.alternate && !copy_state(arrays, "p", std::span<float>(p)))
        std::fill(p.begin(), p.end(), 0.0f);
    }
    warm_p_.swap(p);
    warm_q_.swap(q);
    shared_ = std::any_of(arrays.begin(), arrays.end(), [](const StateArray& array) {
      return array.on_resize == OnResize::kShared;
    });
    rollback();
    return Status::ok();
  }

 private:
  bool renews_p(size_t round) const noexcept { return settings_.alternate ? !odd_ : round == 0; }

  std::span<float> p_of(const FactorPiece& piece) {
    return std::span<float>(p_).subspan(piece.p, piece.shape.left());
  }
  std::span<float> q_of(const FactorPiece& piece) {
    return std::span<float>(q_).subspan(piece.q, piece.shape.right());
  }

  static void read(ByteReader& reader, std::span<float> to) {
    const auto bytes = reader.take(to.size_bytes());
    if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
  }

  // The factor that stays in the first round, orthonormal; lost columns drawn anew.
  void begin_step(const Call& call) {
    const bool fixes_q = renews_p(0);
    const auto& warm = fixes_q ? warm_q_ : warm_p_;
    auto& fixed = fixes_q ? q_ : p_;
    if (settings_.warm_start)
      std::copy(warm.begin(), warm.end(), fixed.begin());
    else
      std::fill(fixed.begin(), fixed.end(), 0.0f);
    Call shared = call;
    shared.salt = 0;
    const RandomKey key = codec_random_key(shared, name_);
    for (const FactorPiece& piece : layout_.pieces) {
      if (piece.is_raw()) continue;
      const size_t length = fixes_q ? piece.shape.columns : piece.shape.rows;
      const size_t begin = fixes_q ? piece.q : layout_.end.q + piece.p;
      const auto draw = [&](size_t column, std::span<float> values) {
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = random_unit(key, 4 * (begin + column * length) + i) - 0.5f;
      };
      basis_.make(fixes_q ? q_of(piece) : p_of(piece), length, std::cref(draw));
    }
  }

  // A basis by its norm squared, a power of two: what it is multiplied with.
  std::span<const float> scaled(std::span<const float> columns, size_t length) {
    const float norm = basis_norm(length);
    const auto to = std::span(scaled_).first(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) to[i] = columns[i] / (norm * norm);
    return to;
  }

  void agree_alone(const Signal& signal, const Call& call) {
    const size_t rounds = settings_.alternate ? 1 : 2;
    alone_.resize(layout_.payload_size());
    for (size_t round = 0; round < rounds; ++round)
      adopt(round, std::span(alone_).first(offer(round, signal, call, alone_))).or_throw();
    agreed_ = false;
  }

  const Settings settings_;
  const std::string name_;
  const FactorLayout layout_;
  BasisMaker basis_;
  AlignedVector<float> raw_;              // means of what travels as it is
  AlignedVector<float> p_, q_;            // of this step
  AlignedVector<float> warm_p_, warm_q_;  // of the last that counted; zeros at first
  AlignedVector<float> scaled_;
  std::vector<std::byte> alone_;  // offers of the only rank
  bool odd_ = false;
  bool agreed_ = false;  // rounds were made
  bool next_is_shared_ = false;
  bool shared_ = false;   // all ranks agreed on the factors that are kept
  bool encoded_ = false;  // p_ and q_ are those of a step
};

class PowersgdDecoder final : public Decoder {
 public:
  explicit PowersgdDecoder(FactorLayout layout) : layout_(std::move(layout)) {}

  Status decode_add(std::span<const std::byte> payload, float weight,
                    std::span<float> out) const override {
    if (!keeps_finite(weight)) return add_checked(*this, "powersgd", payload, weight, out);
    return each(
        payload, out,
        [&](auto bytes, std::span<float> to) { return kernel::add_floats(bytes, weight, to); },
        [&](auto p, auto q, const kernel::ThinShape& shape, std::span<float> to) {
          kernel::add_product(p, q, shape, weight, to);
        });
  }

  Status decode(std::span<const std::byte> payload, std::span<float> out) const override {
    return each(
        payload, out,
        [](auto bytes, std::span<float> to) {
          kernel::fill(to, 0.0f);
          return kernel::add_floats(bytes, 1.0f, to);
        },
        [](auto p, auto q, const kernel::ThinShape& shape, std::span<float> to) {
          kernel::set_product(p, q, shape, to);
        });
  }

 private:
  // Every piece of the payload with its place: raw(bytes, to), which says whether they were finite,
  // or product(p, q, shape, to) of finite factors with a finite product.
  template <typename Raw, typename Product>
  Status each(std::span<const std::byte> payload, std::span<float> out, const Raw& raw,
              const Product& product) const {
    if (payload.size() != layout_.payload_size())
      return Status::fail(ErrorCode::kBadLength,
                          "powersgd: payload length does not match the tensors");
    thread_local AlignedVector<float> memory;  // decoders are shared between threads
    ByteReader reader(payload);
    for (const FactorPiece& piece : layout_.pieces) {
      const auto bytes = reader.take(piece.floats() * sizeof(float));
      const auto to =
          out.subspan(piece.begin, piece.is_raw() ? piece.shape.columns : piece.shape.count());
      bool good = true;
      if (piece.is_raw()) {
        good = raw(bytes, to);
      } else {
        memory.resize(piece.floats());
        std::memcpy(memory.data(), bytes.data(), bytes.size());
        const auto factors = std::span<const float>(memory);
        const auto p = factors.first(piece.shape.left()), q = factors.subspan(piece.shape.left());
        good =
            std::all_of(factors.begin(), factors.end(), [](float x) { return std::isfinite(x); }) &&
            bound(p, q, piece.shape) <= kMaxFloat / 2;
        if (good) product(p, q, piece.shape, to);
      }
      if (!good)
        return Status::fail(ErrorCode::kCorrupt,
                            "powersgd: a value is not finite, or a product could not be");
    }
    return Status::ok();
  }

  FactorLayout layout_;
};

class PowersgdCodec final : public Codec {
 public:
  explicit PowersgdCodec(const Options& options)
      : settings_{.rank = static_cast<size_t>(options.integer("rank")),
                  .min_compression = options.number("min_compression"),
                  .alternate = options.flag("alternate"),
                  .warm_start = options.flag("warm_start")} {}

  const CodecInfo& info() const noexcept override { return kInfo; }
  size_t max_encoded_size(const StreamSpec& stream) const override {
    return layout_of(stream, settings_.rank, settings_.min_compression).payload_size();
  }
  std::vector<Round> rounds(const StreamSpec& stream, bool odd_step) const override {
    const FactorPiece end = layout_of(stream, settings_.rank, settings_.min_compression).end;
    const auto mean = [](size_t floats) {
      return Round{.combine = Round::Combine::kMean, .size = floats * sizeof(float)};
    };
    if (settings_.alternate) return {mean(end.raw + (odd_step ? end.q : end.p))};
    if (end.q == 0) return {mean(end.raw)};
    return {mean(end.raw + end.p), mean(end.q)};
  }
  std::unique_ptr<Encoder> make_encoder(const StreamSpec& stream) const override {
    return std::make_unique<PowersgdEncoder>(settings_, stream);
  }
  std::unique_ptr<const Decoder> make_decoder(const StreamSpec& stream) const override {
    return std::make_unique<PowersgdDecoder>(
        layout_of(stream, settings_.rank, settings_.min_compression));
  }

 private:
  Settings settings_;
};

}  // namespace

const CodecEntry& powersgd_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {{.name = "rank",
                   .type = OptionType::kInteger,
                   .fallback = "2",
                   .min = 1,
                   .max = 256,
                   .unit = "columns",
                   .help = "of each factor; at most what the matrix has"},
                  {.name = "min_compression",
                   .type = OptionType::kNumber,
                   .fallback = "2",
                   .min = 0,
                   .max = 1000,
                   .help =
                       "tensors that would not become so many times smaller travel as they are"},
                  {.name = "alternate",
                   .type = OptionType::kFlag,
                   .fallback = "false",
                   .help = "renew one factor a step, in turn: half the bytes and rounds"},
                  {.name = "warm_start",
                   .type = OptionType::kFlag,
                   .fallback = "true",
                   .help = "start from the factors of the step before"}},
      .make = [](const Options& options) { return std::make_unique<PowersgdCodec>(options); }};
  return entry;
}

}  // namespace thinwire
