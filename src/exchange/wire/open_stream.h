// open_stream(): makes the CodedStream of a planned stream, with its memory and encoder from a
// store.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "device/device_work.h"
#include "exchange/layout/plan.h"
#include "exchange/wire/coding_terms.h"
#include "stream/coded_stream.h"
#include "thinwire/store.h"
#include "thinwire/stream.h"

namespace thinwire {

// With the memory "<stream>/feedback" and the encoder "<stream>/encoder" of `store`, made where
// they are missing. A plain stream has fp32, and remembers nothing but the momentum that the memory
// of the others has: "<tensor>/feedback" for each of its tensors. Throws kMismatch where the memory
// of that name owes something to other tensors.
CodedStream open_stream(const PlannedStream& planned, const CodingTerms& terms, Store& store);

// The same for a stream whose values are in a device's memory: memory and encoder live there, and
// take over what those in the processor's memory kept. (open_stream does the reverse.) REQUIRES:
// lack_of_device_form is empty.
CodedStream open_device_stream(const PlannedStream& planned, const CodingTerms& terms, Store& store,
                               const SharedWork& work);

// Which of codec and memory has no form for values in a device's memory; empty if both have one.
std::string lack_of_device_form(const CodingTerms& terms, const SharedWork& work);

// What an encoder is found by in a store. One that may be given a threshold is not the one that
// finds its own.
std::string encoder_text(const CodingTerms& terms, const StreamSpec& spec);

}  // namespace thinwire
