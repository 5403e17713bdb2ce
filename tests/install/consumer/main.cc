// A program outside the project: codecs on plain floats, and a compressed mean over two ranks.
#include <thinwire/codec.h>
#include <thinwire/exchange.h>
#include <thinwire/group.h>
#include <thinwire/version.h>

#include <cstdio>
#include <vector>

int main() {
  const thinwire::StreamSpec stream =
      thinwire::single_tensor({.name = "w", .shape = {4}, .kind = thinwire::TensorKind::kLinear});
  const auto codec = thinwire::make_codec("fp16").value().codec;
  const std::vector<float> values = {1, -2, 3, 0.5f};
  std::vector<std::byte> payload(codec->max_encoded_size(stream));
  payload.resize(codec->make_encoder(stream)->encode({.values = values}, {}, payload, {}).size);
  std::vector<float> decoded(4);
  codec->make_decoder(stream)->decode_add(payload, 1, decoded).or_throw();

  double mean = 0;
  thinwire::run_local(2, [&](thinwire::Group& group) {
    thinwire::Store store;
    const auto exchange = thinwire::make_exchange(group, store, stream.tensors, {});
    std::vector<float> gradient(4, static_cast<float>(group.rank()));
    exchange->start(0, {.data = gradient.data(), .count = 4});
    exchange->finish();
    if (group.rank() == 0) mean = gradient[3];
  });
  std::printf("thinwire %s: %g %g\n", THINWIRE_VERSION, decoded[1], mean);
  return decoded == values && mean == 0.5 ? 0 : 1;
}
