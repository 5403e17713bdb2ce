// Rows of dense and scatter-reduce from the exchange's own chunks; of sparse-reduce from its
// stripes.
// SPDX-License-Identifier: Apache-2.0
#include "plan/owner_rows.h"

#include <algorithm>
#include <utility>

#include "exchange/layout/stripes.h"
#include "exchange/owner/shard.h"
#include "plan/step_layout.h"
#include "thinwire/frame.h"

namespace thinwire {
namespace {

OwnerShare share_of(const StepLayout& layout, const Chunk& chunk) {
  OwnerShare share{.size = static_cast<double>(chunk.size)};
  for (const ChunkPart& part : chunk.parts) {
    share.encode_seconds += layout.encode_seconds(*part.stream, part.range.count);
    share.decode_seconds += layout.decode_seconds(*part.stream, part.range.count);
  }
  return share;
}

void add_up(OwnerRow& row) {
  for (const OwnerShare& share : row.shares) {
    row.whole.size += share.size;
    row.whole.encode_seconds += share.encode_seconds;
    row.whole.decode_seconds += share.decode_seconds;
  }
}

std::vector<OwnerRow> dense_rows(const StepLayout& layout, const LaidSection& section) {
  std::vector<OwnerRow> rows;
  Coders coders;
  for (size_t bucket = 0; bucket < section.buckets.size(); ++bucket) {
    OwnerRow row{.place = section.places[bucket], .shares = {}, .whole = {}};
    for (const Chunk& shard :
         make_shards(layout.streams(), section.buckets[bucket], layout.ranks(), coders))
      row.shares.push_back(share_of(layout, shard));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Chunks of the same number on the routes of all owners are one row.
std::vector<OwnerRow> chunk_rows(const StepLayout& layout, const LaidSection& section) {
  const size_t n = layout.ranks();
  std::vector<OwnerRow> rows;
  for (size_t bucket = 0; bucket < section.buckets.size(); ++bucket) {
    const size_t first = rows.size();
    for (size_t owner = 0; owner < n; ++owner) {
      const Route& route = section.chunks->route(owner);
      const size_t begin = bucket == 0 ? 0 : route.ends[bucket - 1];
      for (size_t chunk = begin; chunk < route.ends[bucket]; ++chunk) {
        const size_t number = first + (chunk - begin);
        if (number == rows.size())
          rows.push_back(
              {.place = section.places[bucket], .shares = std::vector<OwnerShare>(n), .whole = {}});
        rows[number].shares[owner] = share_of(layout, route.chunks[chunk]);
      }
    }
  }
  return rows;
}

// The header of a sparse payload: docs/wire-format.md.
constexpr double kSparseHead = 12;
constexpr double kLength = sizeof(uint64_t);  // before every message

// Of a stream with a payload of c bytes, a region gets its share by values, with a header. What is
// handed out is as long as what a rank sent of the region.
void add_regions(const StepLayout& layout, const ActiveStream& stream, OwnerRow& row) {
  const size_t n = layout.ranks();
  const auto count = static_cast<double>(stream.spec().count());
  const double payload = layout.frame_size(stream) - kFrameHeaderSize;
  const Stripes stripes(stream.spec().count(), n);
  const CodecCost& cost = layout.cost(stream);
  for (size_t owner = 0; owner < n; ++owner) {
    const auto region = stripes.region_of(owner, n, stream.first());
    if (!region) continue;
    const double part = static_cast<double>(stripes.size(*region)) / std::max(1.0, count);
    OwnerShare& share = row.shares[owner];
    if (share.size == 0) share.size = kLength;
    share.size += kFrameHeaderSize + (stream.is_plain() ? 0 : kSparseHead) + part * payload;
    share.encode_seconds += part * cost.encode_seconds_per_value * count;
    share.decode_seconds += part * cost.decode_seconds_per_value * count;
  }
  row.encode_seconds += layout.encode_seconds(stream, stream.spec().count());
  row.decode_seconds += layout.decode_seconds(stream, stream.spec().count());
}

std::vector<OwnerRow> region_rows(const StepLayout& layout, const LaidSection& section) {
  std::vector<OwnerRow> rows;
  for (size_t bucket = 0; bucket < section.buckets.size(); ++bucket) {
    OwnerRow row{.place = section.places[bucket],
                 .shares = std::vector<OwnerShare>(layout.ranks()),
                 .whole = {},
                 .by_owner = false};
    for (const Piece& piece : section.buckets[bucket])
      add_regions(layout, layout.stream(piece), row);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<OwnerRow> owner_rows(const StepLayout& layout, const LaidSection& section) {
  const std::string_view method = section.method->name;
  std::vector<OwnerRow> rows;
  if (method == "dense")
    rows = dense_rows(layout, section);
  else if (method == "scatter-reduce")
    rows = chunk_rows(layout, section);
  else if (method == "sparse-reduce")
    rows = region_rows(layout, section);
  for (OwnerRow& row : rows) add_up(row);
  return rows;
}

}  // namespace thinwire
