// Includes the texts and calls their kernels by name.
// SPDX-License-Identifier: Apache-2.0
#include "device/testing/host_kernels.h"

#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "device/testing/host_prelude.h"
#include "thinwire/status.h"

namespace thinwire::device {
namespace {

#include "device/texts/common.cu"
namespace bins {
#include "device/texts/bins.cu"
}
namespace grid_blocks {
#include "device/texts/grid_blocks.cu"
}
namespace half_float {
#include "device/texts/half_float.cu"
}
namespace memories {
#include "device/texts/memories.cu"
}
namespace positions {
#include "device/texts/positions.cu"
}
namespace selection {
#include "device/texts/selection.cu"
}
namespace tails {
#include "device/texts/tails.cu"
}
namespace two_levels {
#include "device/texts/two_levels.cu"
}
namespace scaled_blocks {
#include "device/texts/scaled_blocks.cu"
}

// How kernels run: HostLauncher's members.
struct Way {
  bool backward;
  void* (*reach)(void*);

  template <class Value>
  void turn(Value& value) const {
    if constexpr (std::is_pointer_v<Value>)
      if (reach != nullptr)
        value = static_cast<Value>(reach(const_cast<void*>(static_cast<const void*>(value))));
  }
};

struct HostKernel {
  std::string_view name;
  void (*run)(Grid grid, const Way& way, std::span<const Argument> arguments);
};

template <class... Parameters, size_t... kIndex>
void call(void (*kernel)(Parameters...), Grid grid, const Way& way,
          std::span<const Argument> arguments, std::index_sequence<kIndex...>) {
  constexpr size_t kSizes[] = {sizeof(Parameters)...};
  THINWIRE_CHECK(arguments.size() == sizeof...(Parameters), "kernel: not as many arguments");
  for (size_t i = 0; i < arguments.size(); ++i)
    THINWIRE_CHECK(arguments[i].size == kSizes[i],
                   "kernel: argument " + std::to_string(i) + " has another size");
  std::tuple<Parameters...> values;
  (std::memcpy(&std::get<kIndex>(values), arguments[kIndex].data, kSizes[kIndex]), ...);
  (way.turn(std::get<kIndex>(values)), ...);
  run_on_host(grid.blocks, grid.threads, way.backward, [&] { std::apply(kernel, values); });
}

template <class... Parameters>
void call_all(void (*kernel)(Parameters...), Grid grid, const Way& way,
              std::span<const Argument> arguments) {
  call(kernel, grid, way, arguments, std::index_sequence_for<Parameters...>());
}

template <auto kKernel>
void run(Grid grid, const Way& way, std::span<const Argument> arguments) {
  call_all(kKernel, grid, way, arguments);
}

// Of a SUM_KERNEL, which a GPU does not launch with larger blocks.
template <auto kKernel>
void run_sum(Grid grid, const Way& way, std::span<const Argument> arguments) {
  THINWIRE_CHECK(grid.threads <= 64, "kernel: more threads in a block than it is compiled for");
  call_all(kKernel, grid, way, arguments);
}

// A kernel that is missing here is one that no test runs: kernel_texts_test.cc compares.
constexpr HostKernel kKernels[] = {
    {"memories/fold_moments", run<memories::fold_moments>},
    {"memories/moments", run_sum<memories::moments>},
    {"memories/weighted_sum_with_moments", run_sum<memories::weighted_sum_with_moments>},
    {"memories/weighted_sum", run<memories::weighted_sum>},
    {"memories/add_velocity", run_sum<memories::add_velocity>},
    {"memories/mask_velocity", run<memories::mask_velocity>},
    {"memories/mask_velocity_at", run<memories::mask_velocity_at>},
    {"memories/form_ahead", run_sum<memories::form_ahead>},
    {"memories/settle_ahead", run<memories::settle_ahead>},
    {"memories/advance_estimate", run<memories::advance_estimate>},
    {"memories/scale", run<memories::scale>},
    {"memories/add_and_copy", run<memories::add_and_copy>},
    {"two_levels/encode_levels", run<two_levels::encode_levels>},
    {"two_levels/level_chunks", run_sum<two_levels::level_chunks>},
    {"two_levels/level_headers", run<two_levels::level_headers>},
    {"two_levels/pack_levels", run<two_levels::pack_levels>},
    {"two_levels/add_levels", run<two_levels::add_levels>},
    {"two_levels/encode_signs", run<two_levels::encode_signs>},
    {"two_levels/add_signs", run<two_levels::add_signs>},
    {"selection/count_tiles", run<selection::count_tiles>},
    {"selection/sum_before", run<selection::sum_before>},
    {"selection/add_segments", run<selection::add_segments>},
    {"selection/write_selected", run<selection::write_selected>},
    {"selection/fill_words", run<selection::fill_words>},
    {"selection/copy_values", run<selection::copy_values>},
    {"selection/count_bins", run<selection::count_bins>},
    {"selection/find_bin", run<selection::find_bin>},
    {"selection/sample_values", run<selection::sample_values>},
    {"selection/add_at", run<selection::add_at>},
    {"selection/put_at", run<selection::put_at>},
    {"positions/choose_parameters", run<positions::choose_parameters>},
    {"positions/write_low_bits", run<positions::write_low_bits>},
    {"positions/write_high_bits", run<positions::write_high_bits>},
    {"positions/copy_bits", run<positions::copy_bits>},
    {"positions/unpack_positions", run<positions::unpack_positions>},
    {"tails/tail_chunks", run_sum<tails::tail_chunks>},
    {"tails/fold_tail", run<tails::fold_tail>},
    {"tails/log_chunks", run_sum<tails::log_chunks>},
    {"bins/choose_bins", run<bins::choose_bins>},
    {"bins/bin_chunks", run_sum<bins::bin_chunks>},
    {"bins/fold_bins", run<bins::fold_bins>},
    {"bins/write_bins", run<bins::write_bins>},
    {"bins/count_ends", run<bins::count_ends>},
    {"bins/add_bins", run<bins::add_bins>},
    {"grid_blocks/range_chunks", run<grid_blocks::range_chunks>},
    {"grid_blocks/make_grids", run<grid_blocks::make_grids>},
    {"grid_blocks/quantise_grid", run<grid_blocks::quantise_grid>},
    {"grid_blocks/add_grid", run<grid_blocks::add_grid>},
    {"half_float/encode_half", run<half_float::encode_half>},
    {"half_float/encode_bfloat", run<half_float::encode_bfloat>},
    {"half_float/add_half", run<half_float::add_half>},
    {"half_float/add_bfloat", run<half_float::add_bfloat>},
    {"half_float/add_half_at", run<half_float::add_half_at>},
    {"half_float/add_bfloat_at", run<half_float::add_bfloat_at>},
    {"scaled_blocks/quantise_blocks", run<scaled_blocks::quantise_blocks>},
    {"scaled_blocks/add_blocks", run<scaled_blocks::add_blocks>},
};

}  // namespace

void HostLauncher::launch(std::string_view kernel, Grid grid, std::span<const Argument> arguments) {
  for (const HostKernel& known : kKernels)
    if (known.name == kernel) return known.run(grid, {backward_, reach_}, arguments);
  throw Error(ErrorCode::kUnknownName, "device: no kernel '" + std::string(kernel) + "'");
}

std::vector<std::string> host_kernel_names() {
  std::vector<std::string> names;
  for (const HostKernel& kernel : kKernels) names.emplace_back(kernel.name);
  return names;
}

}  // namespace thinwire::device

// For sources that are compiled together with this one.
#undef KERNEL
#undef DEVICE
#undef DEVICE_MEMBER
#undef SHARED
#undef UNROLL
#undef SUM_KERNEL
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
