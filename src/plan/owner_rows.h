// OwnerRow: what all ranks send to the owners of values at once, and what owners hand out; methods
// dense, scatter-reduce and sparse-reduce.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace thinwire {

class StepLayout;
struct LaidSection;

// What one owner has of a row.
struct OwnerShare {
  double size = 0;  // bytes of a rank's message to the owner, and of the owner's to a rank
  double encode_seconds = 0;  // of the values in it
  double decode_seconds = 0;  // of those of one rank
};

// One bucket, or one chunk of every owner.
struct OwnerRow {
  size_t place = 0;                // of the bucket among all
  std::vector<OwnerShare> shares;  // by owner
  OwnerShare whole;                // their sum
  double encode_seconds = 0;  // of what a rank sends to all owners, if that is encoded as a whole
  double decode_seconds = 0;  // of what all owners hand out, likewise

  // Whether ranks encode and decode for each owner by itself.
  bool by_owner = true;
};

// Of a section, in the order in which they travel. The same for all ranks and steps. Empty for
// methods without owners.
std::vector<OwnerRow> owner_rows(const StepLayout& layout, const LaidSection& section);

}  // namespace thinwire
