// frame.h: frames from bytes to bytes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "bindings.h"
#include "buffer.h"
#include "option_rows.h"
#include "thinwire/frame.h"

namespace thinwire::python {
namespace {

nb::bytes pack(nb::handle payload, uint8_t codec, uint8_t flags, uint16_t sender,
               uint32_t generation, uint32_t stream, uint64_t step, uint64_t place,
               uint64_t count) {
  const Buffer buffer(payload, Buffer::kRead);
  const auto from = buffer.bytes();
  return make_bytes(kFrameHeaderSize + from.size(), [&](std::span<std::byte> frame) {
    std::copy(from.begin(), from.end(), frame.begin() + kFrameHeaderSize);
    seal_frame({.codec = codec,
                .flags = flags,
                .sender = sender,
                .generation = generation,
                .stream = stream,
                .step = step,
                .place = place,
                .count = count,
                .payload_size = from.size()},
               frame);
    return frame.size();
  });
}

// The header of the frame at the start of `message`; its payload begins kFrameHeaderSize bytes in.
Row read_header(nb::handle message) {
  const Buffer buffer(message, Buffer::kRead);
  FrameHeader header;
  {
    const nb::gil_scoped_release released;
    header = read_frame(buffer.bytes()).value().header;
  }
  Row row;
  row["codec_id"] = static_cast<int>(header.codec);
  row["non_finite"] = (header.flags & kFrameNonFinite) != 0;
  row["sender"] = static_cast<int>(header.sender);
  row["generation"] = header.generation;
  row["stream"] = header.stream;
  row["step"] = header.step;
  row["place"] = header.place;
  row["result"] = (header.flags & kFrameResult) != 0;
  row["count"] = header.count;
  row["payload_size"] = header.payload_size;
  return row;
}

}  // namespace

void bind_frame(nb::module_& module) {
  module.attr("FRAME_HEADER_SIZE") = kFrameHeaderSize;
  module.attr("FRAME_NON_FINITE") = static_cast<int>(kFrameNonFinite);
  module.attr("FRAME_RESULT") = static_cast<int>(kFrameResult);
  module.def("pack", &pack, nb::arg("payload"), nb::arg("codec"), nb::arg("flags"),
             nb::arg("sender"), nb::arg("generation"), nb::arg("stream"), nb::arg("step"),
             nb::arg("place"), nb::arg("count"));
  module.def("read_header", &read_header, nb::arg("message"));
}

}  // namespace thinwire::python
