// codec.h: the sending side of a stream.
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>

#include "bindings.h"
#include "buffer.h"
#include "call.h"
#include "codec_handles.h"
#include "state_list.h"
#include "stream_spec.h"

namespace thinwire::python {
namespace {

std::optional<Buffer> optional_buffer(nb::handle object, Buffer::Access access) {
  if (object.is_none()) return std::nullopt;
  return Buffer(object, access);
}

// The arrays of one encode, held while the GIL is not.
struct Arrays {
  Arrays(nb::handle values_in, nb::handle fresh_in, nb::handle rest_in)
      : values(values_in, Buffer::kRead),
        fresh(optional_buffer(fresh_in, Buffer::kRead)),
        rest(optional_buffer(rest_in, Buffer::kWrite)) {}

  // Without the GIL.
  Encoded encode(EncoderHandle& encoder, const Call& call, std::span<std::byte> out) const {
    const auto left = rest ? rest->writable_floats() : std::span<float>();
    if (rest && left.size() != encoder.count())
      throw Error(ErrorCode::kContract, "encoder: rest is not as long as the values");
    const auto own = fresh ? fresh->floats() : std::span<const float>();
    check_apart(out);
    return encoder.encode(checked_signal(encoder.count(), values.floats(), own), call, out, left);
  }

  // Codecs read what they are given more than once, and rely on it to stay the same.
  void check_apart(std::span<const std::byte> out) const {
    const auto left = rest ? rest->bytes() : std::span<const std::byte>();
    const auto own = fresh ? fresh->bytes() : std::span<const std::byte>();
    const bool same = left.data() == values.bytes().data();
    if (overlap(out, values.bytes()) || overlap(out, own) || overlap(out, left) ||
        overlap(left, own) || (!same && overlap(left, values.bytes())))
      throw Error(ErrorCode::kContract,
                  "encoder: arrays overlap; only rest may be the same memory as values");
  }

  Buffer values;
  std::optional<Buffer> fresh;
  std::optional<Buffer> rest;
};

std::tuple<nb::bytes, Counts> encode(EncoderHandle& self, nb::handle values, nb::handle fresh,
                                     nb::handle rest, const CallTuple& call) {
  const Arrays arrays(values, fresh, rest);
  Encoded encoded;
  nb::bytes payload = make_bytes(self.capacity(), [&](std::span<std::byte> out) {
    encoded = arrays.encode(self, make_call(call), out);
    return encoded.size;
  });
  return {payload, counts(encoded)};
}

Counts encode_into(EncoderHandle& self, nb::handle out, nb::handle values, nb::handle fresh,
                   nb::handle rest, const CallTuple& call) {
  const Arrays arrays(values, fresh, rest);
  const Buffer payload(out, Buffer::kWrite);
  const nb::gil_scoped_release released;
  return counts(arrays.encode(self, make_call(call), payload.writable_bytes()));
}

}  // namespace

void bind_encoder(nb::module_& module) {
  nb::class_<EncoderHandle>(module, "Encoder")
      .def(
          "__init__",
          [](EncoderHandle* self, const CodecHandle& codec, const std::string& name,
             const std::vector<TensorTuple>& tensors, bool auto_commit) {
            new (self) EncoderHandle(codec.codec, stream_spec(name, tensors), auto_commit);
          },
          nb::arg("codec"), nb::arg("name"), nb::arg("tensors"), nb::arg("auto_commit"))
      .def_prop_ro("capacity", &EncoderHandle::capacity)
      .def("encode", &encode, nb::arg("values"), nb::arg("fresh").none(), nb::arg("rest").none(),
           nb::arg("call"))
      .def("encode_into", &encode_into, nb::arg("out"), nb::arg("values"), nb::arg("fresh").none(),
           nb::arg("rest").none(), nb::arg("call"))
      .def("commit", &EncoderHandle::commit)
      .def("rollback", &EncoderHandle::rollback)
      .def("save", [](EncoderHandle& self) { return to_list(self.save()); })
      .def(
          "load",
          [](EncoderHandle& self, const StateList& arrays) { self.load(from_list(arrays)); },
          nb::arg("arrays"));
}

}  // namespace thinwire::python
