// codec.h: the receiving side of a stream.
// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "bindings.h"
#include "buffer.h"
#include "codec_handles.h"
#include "stream_spec.h"

namespace thinwire::python {
namespace {

// Const, so threads may share it.
struct DecoderHandle {
  std::shared_ptr<const Codec> codec;
  size_t count;
  std::unique_ptr<const Decoder> decoder;
};

void decode_add(const DecoderHandle& self, nb::handle payload, float weight, nb::handle out) {
  const Buffer bytes(payload, Buffer::kRead);
  const Buffer values(out, Buffer::kWrite);
  const nb::gil_scoped_release released;
  if (values.floats().size() != self.count)
    throw Error(ErrorCode::kContract, "decoder: out is not as long as the stream");
  if (overlap(bytes.bytes(), values.bytes()))
    throw Error(ErrorCode::kContract, "decoder: out overlaps the payload");
  self.decoder->decode_add(bytes.bytes(), weight, values.writable_floats()).or_throw();
}

}  // namespace

void bind_decoder(nb::module_& module) {
  nb::class_<DecoderHandle>(module, "Decoder")
      .def(
          "__init__",
          [](DecoderHandle* self, const CodecHandle& codec, const std::string& name,
             const std::vector<TensorTuple>& tensors) {
            const StreamSpec stream = stream_spec(name, tensors);
            new (self) DecoderHandle{.codec = codec.codec,
                                     .count = stream.count(),
                                     .decoder = codec.codec->make_decoder(stream)};
          },
          nb::arg("codec"), nb::arg("name"), nb::arg("tensors"))
      .def("decode_add", &decode_add, nb::arg("payload"), nb::arg("weight"), nb::arg("out"));
}

}  // namespace thinwire::python
