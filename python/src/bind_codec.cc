// codec.h: the registry and codecs; encoders and decoders have files of their own.
// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"
#include "codec_handles.h"
#include "option_rows.h"
#include "stream_spec.h"
#include "thinwire/codec.h"

namespace nb = nanobind;

namespace thinwire::python {
namespace {

Row info_row(const CodecInfo& info, const std::vector<OptionInfo>& options) {
  Row row;
  row["name"] = to_str(info.name);
  row["id"] = static_cast<int>(info.id);
  row["summary"] = to_str(info.summary);
  row["paper"] = to_str(info.paper);
  row["unbiased"] = info.unbiased;
  row["lossless"] = info.lossless;
  row["linear"] = info.linear;
  row["fixed_size"] = info.fixed_size;
  row["block"] = info.block;
  row["grouping"] = to_str(to_string(info.grouping));
  row["global_threshold"] = info.global_threshold;
  row["agreed"] = to_str(to_string(info.agreed));
  row["options"] = option_rows(options);
  return row;
}

// What a codec promises may hang on its options: an entry speaks of none.
Row codec_row(const Codec& codec) {
  const CodecInfo& info = codec.info();
  for (const CodecEntry* entry : list_codecs())
    if (entry->info.id == info.id) return info_row(info, entry->options);
  return info_row(info, {});
}

std::vector<Row> codec_rows() {
  std::vector<Row> rows;
  for (const CodecEntry* entry : list_codecs())
    rows.push_back(codec_row(*make_codec(entry->info.name).value().codec));
  return rows;
}

CodecHandle make_handle(const std::string& spec) {
  NamedCodec named = make_codec(spec).value();
  return {.codec = std::move(named.codec), .canonical = std::move(named.canonical)};
}

}  // namespace

void bind_codec(nb::module_& module) {
  module.def("list_codecs", &codec_rows);
  module.def("groupings", [] {
    const auto known = grouping_choices();
    return std::vector<std::string>(known.begin(), known.end());
  });
  nb::class_<CodecHandle>(module, "Codec")
      .def_static("make", &make_handle, nb::arg("spec"))
      .def_ro("canonical", &CodecHandle::canonical)
      .def("info", [](const CodecHandle& self) { return codec_row(*self.codec); })
      .def(
          "max_encoded_size",
          [](const CodecHandle& self, const std::vector<TensorTuple>& tensors) {
            return self.codec->max_encoded_size(stream_spec("", tensors));
          },
          nb::arg("tensors"));
}

}  // namespace thinwire::python
