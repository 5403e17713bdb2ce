// The built-in codecs: one declaration each, one row each in registry.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "thinwire/codec.h"

namespace thinwire {

const CodecEntry& fp32_entry();
const CodecEntry& fp16_entry();
const CodecEntry& bf16_entry();
const CodecEntry& topk_entry();
const CodecEntry& adacomp_entry();
const CodecEntry& sidco_entry();
const CodecEntry& dgc_entry();
const CodecEntry& threshold_entry();
const CodecEntry& randomk_entry();
const CodecEntry& gaussiank_entry();
const CodecEntry& redsync_entry();
const CodecEntry& scalecom_entry();
const CodecEntry& lgc_entry();
const CodecEntry& uniform_entry();
const CodecEntry& int8_entry();
const CodecEntry& int4_entry();
const CodecEntry& acsgd_entry();
const CodecEntry& qsgd_entry();
const CodecEntry& terngrad_entry();
const CodecEntry& natural_entry();
const CodecEntry& sign_entry();
const CodecEntry& signum_entry();
const CodecEntry& powersgd_entry();
const CodecEntry& onebit_entry();
const CodecEntry& demo_entry();
const CodecEntry& srht_entry();
const CodecEntry& countsketch_entry();

}  // namespace thinwire
