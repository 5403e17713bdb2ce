// Codecs with a form for a device's memory, in the variants that differ there: for tests, and for
// checks on a GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thinwire {

inline constexpr const char* kDeviceSpecs[] = {"fp16",
                                               "bf16",
                                               "int8",
                                               "int4:block=1024",
                                               "sign",
                                               "sign:block=tensor",
                                               "onebit",
                                               "signum",
                                               "uniform",
                                               "uniform:bits=8,block=tensor,rounding=random",
                                               "qsgd",
                                               "topk",
                                               "topk:density=0.3,values=fp16",
                                               "threshold:threshold=0.5",
                                               "threshold:threshold=0,max_density=0.1,values=bf16",
                                               "dgc:density=0.1",
                                               "dgc:density=0.1,excess=1.001",
                                               "sidco",
                                               "sidco:density=0.1,law=exponential,stages=3",
                                               "sidco:stages=1,cap=1",
                                               "sidco:stages=4,first_ratio=0.9,values=fp16",
                                               "sidco:law=gamma_pareto",
                                               "sidco:density=0.5,law=gamma_pareto",
                                               "sidco:law=gamma_pareto,stages=2,values=bf16",
                                               "sidco:law=gamma_pareto,gamma_threshold=closed",
                                               "adacomp",
                                               "adacomp:bin_convolution=500,scale_factor=1"};

}  // namespace thinwire
