// lgc: the values at one rank's positions, coded by an autoencoder that all ranks train alike
// [Abrahamyan et al., IEEE TNNLS 33(12), arXiv:2103.08870: LGC, its form for rings].
//
//   I = positions of the k largest |x| of the leader, rank (step mod n), in the order of its values
//   own = what the code of a rank's x on I decodes to;  decoded = mean of own, else 0
//
// The autoencoder is linear (block_autoencoder.h), so ranks add up codes: the mean of codes decodes
// to the mean of what each rank sent. A rank keeps x - own, so nothing is lost. Values that are
// coded together have one sign and are about as large on the leader (value_order.h), which is what
// makes a short code good; the paper sorts them for its convolutions. A rank's *innovation*, which
// its code lacks, goes separately: at the positions that the leader's code reproduces worst, all
// ranks' values are averaged as they are.
//
// With `train` values are averaged instead of codes, and every rank takes the same step of training
// on their mean. So no matrix is ever sent. The paper's three phases are a schedule of codecs:
// "fp32 | 1: lgc:train=true | 2: lgc". Before any training the code of a block is its mean, and
// with a longer code its slope and so on.
//
// Rounds, of method shared-index:
//
//   0, from the root:  u32 kept; where values are coded and `innovation` is not 0: u32 innovations,
//                      u32 size, their numbers among the kept values (position code, `size` bytes);
//                      where values are coded or trained on: bit string of labels of the others;
//                      positions[kept]
//   1, a mean:         f32: codes of the positive values, codes of the negative ones, innovations;
//                      or all values in ascending order of position; then zeros
//
// A stream whose codes would be no fewer floats than its values sends values, without labels.
//
// Payload: as in sparse_payload.h, in fp32. Encoded by itself, without rounds, a rank decodes its
// own code.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "codec/block_autoencoder.h"
#include "codec/builtin.h"
#include "codec/sparse_codec.h"
#include "codec/value_order.h"
#include "core/aligned.h"
#include "core/bytes.h"
#include "kernel/code_bits.h"
#include "kernel/position_code.h"
#include "kernel/top_selector.h"

namespace thinwire {
namespace {

constexpr CodecInfo kInfo{.name = "lgc",
                          .id = 13,
                          .summary = "values at one rank's positions, by a trained autoencoder",
                          .paper = "LGC, IEEE TNNLS 2022, arXiv:2103.08870",
                          .sparse = true,
                          .agreed = Agreed::kPositions};

struct Settings {
  double density = 0, innovation = 0;
  size_t block = 0, code = 0, order = 0;
  bool train = false;
};

// What streams of one length send.
struct Layout {
  Layout(const Settings& settings, size_t values)
      : count(values),
        target(kept_target(settings.density, values)),
        order(settings.order),
        code_size(std::min(settings.code, settings.block)) {
    const auto wanted = std::llround(settings.innovation * static_cast<double>(values));
    innovations = std::min(target, static_cast<size_t>(wanted));
    floats = innovations +
             BlockAutoencoder::most_codes_of_two(target - innovations, settings.block, code_size);
    coded = !settings.train && floats < target;
    labelled = settings.train || coded;
    if (!coded) {
      floats = target;
      innovations = 0;
    }
  }

  size_t max_offer() const {
    return sizeof(uint32_t) +
           (innovations == 0
                ? 0
                : 2 * sizeof(uint32_t) + kernel::max_position_bytes(target, innovations)) +
           (labelled ? kernel::code_bytes(target, order) : 0) +
           kernel::max_position_bytes(count, target);
  }

  size_t count, target;    // values, and k
  size_t order;            // bits of a label
  size_t code_size;        // floats of a block
  size_t innovations = 0;  // at most
  size_t floats = 0;       // of the second round
  bool coded = false;      // otherwise values travel
  bool labelled = false;   // the leader tells the order of its values
};

bool read_positions(std::span<const std::byte> bytes, size_t count, size_t kept,
                    std::vector<uint32_t>& to) {
  to.clear();
  kernel::PositionReader reader(bytes, count, kept);
  for (auto at = reader.next(); !at.empty(); at = reader.next())
    to.insert(to.end(), at.begin(), at.end());
  return reader.done();
}

class LgcEncoder final : public Encoder {
 public:
  LgcEncoder(const Settings& settings, size_t count)
      : layout_(settings, count),
        train_(settings.train),
        autoencoder_(settings.block, layout_.code_size),
        selector_(count, layout_.target),
        next_(autoencoder_.matrix().begin(), autoencoder_.matrix().end()) {}

  size_t offer(size_t round, const Signal& signal, const Call& /*call*/,
               std::span<std::byte> out) override {
    return round == 0 ? offer_positions(signal.values, out) : offer_values(signal.values, out);
  }

  Status adopt(size_t round, std::span<const std::byte> combined) override {
    agreed_ = true;
    return round == 0 ? adopt_positions(combined) : adopt_values(combined);
  }

  Encoded encode(const Signal& signal, const Call& /*call*/, std::span<std::byte> out,
                 std::span<float> rest) override {
    learnt_ = train_ && std::exchange(agreed_, false) && learnt_;
    if (!chosen_) agree_alone(signal.values);
    if (!rest.empty() && rest.data() != signal.values.data())
      std::copy(signal.values.begin(), signal.values.end(), rest.begin());
    if (!rest.empty())
      for (size_t i = 0; i < positions_.size(); ++i) rest[positions_[i]] -= own_[i];
    return {.size = write_sparse(positions_, values_, ValueFormat::kFp32, out),
            .kept = positions_.size(),
            .target = layout_.target,
            .positions = positions_};
  }

  void commit() override {
    if (learnt_) autoencoder_.set_matrix(next_);
    rollback();
  }
  void rollback() override { agreed_ = chosen_ = learnt_ = false; }

  StateArrays save() const override {
    const int64_t shape[2] = {static_cast<int64_t>(autoencoder_.block()),
                              static_cast<int64_t>(layout_.code_size)};
    return {make_state("shape", shape, OnResize::kShared),
            make_state("matrix", autoencoder_.matrix(), OnResize::kShared)};
  }
  bool shares_state() const noexcept override { return true; }

  // A matrix of another shape is of no use: training starts afresh, and nothing that is owed is
  // lost.
  Status load(const StateArrays& arrays) override {
    int64_t shape[2] = {};
    if (Status status = copy_state(arrays, "shape", shape); !status) return status;
    AlignedVector<float> matrix(autoencoder_.matrix().size());
    if (shape[0] == static_cast<int64_t>(autoencoder_.block()) &&
        shape[1] == static_cast<int64_t>(layout_.code_size)) {
      if (Status status = copy_state(arrays, "matrix", std::span<float>(matrix)); !status)
        return status;
      if (!std::all_of(matrix.begin(), matrix.end(), [](float x) { return std::isfinite(x); }))
        return Status::fail(ErrorCode::kCorrupt, "lgc: the matrix of a state is not finite");
      autoencoder_.set_matrix(matrix);
    } else {
      autoencoder_ = BlockAutoencoder(autoencoder_.block(), layout_.code_size);
    }
    rollback();
    return Status::ok();
  }

 private:
  size_t offer_positions(std::span<const float> values, std::span<std::byte> out) {
    const auto chosen = selector_.select(values);
    positions_.assign(chosen.begin(), chosen.end());
    kept_.clear();
    for (const uint32_t position : positions_) kept_.push_back(values[position]);
    ByteWriter writer(out);
    writer.put(static_cast<uint32_t>(positions_.size()));
    innovations_.clear();
    if (layout_.innovations > 0) offer_innovations(writer, out);
    if (layout_.labelled) {
      gather_others();
      labels_.resize(others_.size());
      label_values(run_, layout_.order, labels_);
      kernel::pack_codes(labels_, layout_.order,
                         writer.take(kernel::code_bytes(labels_.size(), layout_.order)));
    }
    const size_t size = kernel::pack_positions(positions_, out.subspan(writer.written()));
    return writer.written() + size;
  }

  // Those whose codes, if all values were coded, would be worst.
  void offer_innovations(ByteWriter& writer, std::span<std::byte> out) {
    gather_others();
    labels_.resize(others_.size());
    label_values(run_, layout_.order, labels_);
    sort_others();
    code_others(kept_);
    AlignedVector<float> errors(kept_.size());
    for (size_t i = 0; i < errors.size(); ++i) errors[i] = kept_[i] / 2 - own_[i] / 2;
    kernel::TopSelector worst(errors.size(), std::min(layout_.innovations, errors.size()));
    const auto numbers = worst.select(errors);
    innovations_.assign(numbers.begin(), numbers.end());
    writer.put(static_cast<uint32_t>(innovations_.size()));
    const auto size_at = writer.take(sizeof(uint32_t));
    const auto size =
        static_cast<uint32_t>(kernel::pack_positions(innovations_, out.subspan(writer.written())));
    std::memcpy(size_at.data(), &size, sizeof size);
    writer.take(size);
  }

  // What is refused leaves no positions.
  Status adopt_positions(std::span<const std::byte> offered) {
    const Status status = read_offer(offered);
    if (!status) {
      positions_.clear();
      innovations_.clear();
      labels_.clear();
    }
    kept_.assign(positions_.size(), 0.0f);
    own_ = values_ = kept_;
    gather_others();
    if (layout_.labelled) sort_others();
    chosen_ = status.is_ok();
    return status;
  }

  Status read_offer(std::span<const std::byte> offered) {
    positions_.clear();
    innovations_.clear();
    ByteReader reader(offered);
    const size_t kept = reader.get<uint32_t>();
    if (!reader.ok() || kept > layout_.target)
      return Status::fail(ErrorCode::kCorrupt, "lgc: more positions than the density allows");
    if (layout_.innovations > 0) {
      const size_t count = reader.get<uint32_t>(), size = reader.get<uint32_t>();
      if (!reader.ok() || count > std::min(layout_.innovations, kept) ||
          !read_positions(reader.take(size), kept, count, innovations_))
        return Status::fail(ErrorCode::kCorrupt, "lgc: innovations contradict their number");
    }
    if (layout_.labelled) {
      labels_.resize(kept - innovations_.size());
      const auto bits = reader.take(kernel::code_bytes(labels_.size(), layout_.order));
      if (!reader.ok()) return Status::fail(ErrorCode::kCorrupt, "lgc: labels are cut short");
      kernel::unpack_codes(bits, layout_.order, labels_);
    }
    if (read_positions(reader.take(reader.remaining()), layout_.count, kept, positions_))
      return Status::ok();
    return Status::fail(ErrorCode::kCorrupt, "lgc: positions contradict the count or the length");
  }

  size_t offer_values(std::span<const float> values, std::span<std::byte> out) {
    for (size_t i = 0; i < positions_.size(); ++i) kept_[i] = values[positions_[i]];
    floats_.assign(layout_.floats, 0.0f);
    own_ = kept_;
    if (layout_.coded) {
      code_others(kept_);
      std::copy(codes_.begin(), codes_.end(), floats_.begin());
      for (size_t i = 0; i < innovations_.size(); ++i)
        floats_[codes_.size() + i] = kept_[innovations_[i]];
    } else {
      std::copy(kept_.begin(), kept_.end(), floats_.begin());
    }
    ByteWriter(out).put_bytes(std::as_bytes(std::span(floats_)));
    return layout_.floats * sizeof(float);
  }

  Status adopt_values(std::span<const std::byte> mean) {
    if (mean.size() != layout_.floats * sizeof(float))
      return Status::fail(ErrorCode::kBadLength, "lgc: floats of another length");
    floats_.resize(layout_.floats);
    if (!mean.empty()) std::memcpy(floats_.data(), mean.data(), mean.size());
    if (!layout_.coded) {
      std::copy_n(floats_.begin(), values_.size(), values_.begin());
      if (train_) learn();
      return Status::ok();
    }
    const size_t codes = codes_of_runs();
    const auto all = std::span<const float>(floats_);
    run_.resize(others_.size());
    const size_t first = autoencoder_.code_size(positives_);
    autoencoder_.decode(all.first(first), std::span(run_).first(positives_));
    autoencoder_.decode(all.subspan(first, codes - first), std::span(run_).subspan(positives_));
    for (size_t i = 0; i < run_.size(); ++i) values_[others_[order_[i]]] = run_[i];
    for (size_t i = 0; i < innovations_.size(); ++i) values_[innovations_[i]] = floats_[codes + i];
    if (std::all_of(values_.begin(), values_.end(), [](float x) { return std::isfinite(x); }))
      return Status::ok();
    return Status::fail(ErrorCode::kCorrupt, "lgc: codes decode to values that are not finite");
  }

  // The numbers of the kept values that are no innovations, and these values.
  void gather_others() {
    others_.clear();
    run_.clear();
    size_t next = 0;
    for (uint32_t i = 0; i < kept_.size(); ++i) {
      if (next < innovations_.size() && innovations_[next] == i) {
        ++next;
        continue;
      }
      others_.push_back(i);
      run_.push_back(kept_[i]);
    }
  }

  void sort_others() {
    order_.resize(others_.size());
    positives_ = order_by_labels(labels_, layout_.order, order_);
  }

  size_t codes_of_runs() const {
    return autoencoder_.code_size(positives_) + autoencoder_.code_size(others_.size() - positives_);
  }

  // Of values by their numbers; what the codes decode to goes to own_.
  void code_others(std::span<const float> kept) {
    own_.assign(kept.begin(), kept.end());
    run_.resize(others_.size());
    for (size_t i = 0; i < run_.size(); ++i) run_[i] = kept[others_[order_[i]]];
    codes_.resize(codes_of_runs());
    decoded_.resize(run_.size());
    const auto values = std::span<const float>(run_);
    const auto codes = std::span(codes_);
    const auto decoded = std::span(decoded_);
    const size_t first = autoencoder_.code_size(positives_);
    autoencoder_.encode(values.first(positives_), codes.first(first), decoded.first(positives_));
    autoencoder_.encode(values.subspan(positives_), codes.subspan(first),
                        decoded.subspan(positives_));
    for (size_t i = 0; i < decoded_.size(); ++i) own_[others_[order_[i]]] = decoded_[i];
  }

  // The whole blocks of both signs.
  void learn() {
    const size_t block = autoencoder_.block();
    run_.clear();
    const auto add = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end - (end - begin) % block; ++i)
        run_.push_back(values_[others_[order_[i]]]);
    };
    add(0, positives_);
    add(positives_, order_.size());
    autoencoder_.learn(run_, next_);
    learnt_ = true;
  }

  void agree_alone(std::span<const float> values) {
    alone_.resize(std::max(layout_.max_offer(), layout_.floats * sizeof(float)));
    adopt_positions(std::span(alone_).first(offer_positions(values, alone_))).or_throw();
    adopt_values(std::span(alone_).first(offer_values(values, alone_))).or_throw();
    learnt_ = false;  // no other rank would have this matrix
  }

  const Layout layout_;
  const bool train_;
  BlockAutoencoder autoencoder_;
  kernel::TopSelector selector_;
  AlignedVector<float> next_;          // the matrix after this step
  std::vector<uint32_t> positions_;    // I
  std::vector<uint32_t> innovations_;  // numbers of kept values, as the next two
  std::vector<uint32_t> others_;
  std::vector<uint32_t> order_;  // numbers in others_, by label
  std::vector<uint8_t> labels_;  // of others_
  size_t positives_ = 0;         // of order_
  std::vector<float> kept_;      // this rank's values at the positions
  std::vector<float> own_;       // what is sent of them
  std::vector<float> values_;    // the mean of that
  AlignedVector<float> run_, decoded_, codes_, floats_;
  std::vector<std::byte> alone_;  // offers of the only rank
  bool agreed_ = false;           // rounds were made
  bool chosen_ = false;           // there are positions, and all that lies at them
  bool learnt_ = false;           // next_ is newer than the matrix in use
};

class LgcCodec final : public SparseCodec {
 public:
  explicit LgcCodec(const Options& options)
      : SparseCodec(kInfo, ValueFormat::kFp32),
        settings_{.density = options.number("density"),
                  .innovation = options.number("innovation"),
                  .block = static_cast<size_t>(options.integer("block")),
                  .code = static_cast<size_t>(options.integer("code")),
                  .order = static_cast<size_t>(options.integer("order")),
                  .train = options.flag("train")} {}

  std::vector<Round> rounds(const StreamSpec& stream, bool /*odd_step*/) const override {
    const Layout layout(settings_, stream.count());
    return {{.combine = Round::Combine::kFromRoot, .size = layout.max_offer()},
            {.combine = Round::Combine::kMean, .size = layout.floats * sizeof(float)}};
  }

 private:
  size_t wanted(size_t count) const noexcept override {
    return kept_target(settings_.density, count);
  }
  size_t most_kept(size_t count) const noexcept override { return wanted(count); }
  std::unique_ptr<Encoder> encoder_of(size_t count) const override {
    return std::make_unique<LgcEncoder>(settings_, count);
  }

  Settings settings_;
};

}  // namespace

const CodecEntry& lgc_entry() {
  static const CodecEntry entry{
      .info = kInfo,
      .options = {density_option(),
                  {.name = "block",
                   .type = OptionType::kInteger,
                   .fallback = "16",
                   .min = 2,
                   .max = 256,
                   .unit = "values",
                   .help = "of one sign and about one size that are coded together"},
                  {.name = "code",
                   .type = OptionType::kInteger,
                   .fallback = "1",
                   .min = 1,
                   .max = 16,
                   .unit = "floats",
                   .help = "of a block; at most as many as it has values"},
                  {.name = "order",
                   .type = OptionType::kInteger,
                   .fallback = "4",
                   .min = 1,
                   .max = 8,
                   .unit = "bits",
                   .help = "by which the leader tells the sign and size of each value"},
                  {.name = "innovation",
                   .type = OptionType::kNumber,
                   .fallback = "0.0001",
                   .min = 0,
                   .max = 1,
                   .unit = "fraction",
                   .help = "values that codes reproduce worst, sent as they are"},
                  {.name = "train",
                   .type = OptionType::kFlag,
                   .fallback = "false",
                   .help = "send values instead of codes, and train on their mean"}},
      .make = [](const Options& options) { return std::make_unique<LgcCodec>(options); }};
  return entry;
}

}  // namespace thinwire
