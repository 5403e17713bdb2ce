// The passes of memories, as kernel/memory_passes.h and kernel/ahead_passes.h, and moments, as
// kernel/vector_moments.h.
// SPDX-License-Identifier: Apache-2.0

// As device/memory_kernels.h has it.
struct ChunkMoments {
  double abs_sum, square_sum;
  u32 abs_max;  // its bits
  u32 unused;
};

// The moments of each chunk of what a form makes of its values, by half a warp. Squares of floats
// are exact in double. What is written may lie where it was read.
template <class Form>
DEVICE void form_chunks(u64 count, ChunkMoments* chunks, const Form& form) {
  for_sum_chunks(count, [&](const SumChunk& chunk) {
    double abs_sum = 0, square_sum = 0;
    u32 max = 0;
    for_lane<typename Form::Read>(
        chunk.begin, chunk.end, [&](u64 i) { return form.read(i); },
        [&](u64 i, const typename Form::Read& read) {
          const float value = magnitude(form.make(i, read));
          const double wide = value;
          abs_sum = __dadd_rn(abs_sum, wide);
          square_sum = __dadd_rn(square_sum, __dmul_rn(wide, wide));
          max = magnitude_bits(value) > max ? magnitude_bits(value) : max;
        });
    abs_sum = fold_lanes(abs_sum);
    square_sum = fold_lanes(square_sum);
    max = fold_max(max);
    if (sum_lane() == 0 && chunk.exists) chunks[chunk.number] = {abs_sum, square_sum, max, 0};
  });
}

DEVICE void add_chunk(ChunkMoments& sum, const ChunkMoments& chunk) {
  sum.abs_sum = __dadd_rn(sum.abs_sum, chunk.abs_sum);
  sum.square_sum = __dadd_rn(sum.square_sum, chunk.square_sum);
  sum.abs_max = chunk.abs_max > sum.abs_max ? chunk.abs_max : sum.abs_max;
}

KERNEL void fold_moments(const ChunkMoments* chunks, u64 count, ChunkMoments* total) {
  fold_in_order(chunks, count, total);
}

struct Plain {
  const float* values;
  using Read = float;
  DEVICE_MEMBER Read read(u64 i) const { return values[i]; }
  DEVICE_MEMBER float make(u64, Read value) const { return value; }
};

SUM_KERNEL void moments(const float* values, u64 count, ChunkMoments* chunks) {
  form_chunks(count, chunks, Plain{values});
}

struct WeightedSum {
  float p;
  const float* a;
  float q;
  const float* b;
  float* out;
  struct Read {
    float a, b;
  };
  DEVICE_MEMBER Read read(u64 i) const { return {a[i], b[i]}; }
  DEVICE_MEMBER float make(u64 i, const Read& read) const {
    return out[i] = __fadd_rn(__fmul_rn(p, read.a), __fmul_rn(q, read.b));
  }
};

SUM_KERNEL void weighted_sum_with_moments(float p, const float* a, float q, const float* b,
                                          float* out, u64 count, ChunkMoments* chunks) {
  form_chunks(count, chunks, WeightedSum{p, a, q, b, out});
}

KERNEL void weighted_sum(float p, const float* a, float q, const float* b, float* out, u64 count) {
  const WeightedSum sum{p, a, q, b, out};
  for (u64 i = thread_index(); i < count; i += thread_count()) sum.make(i, sum.read(i));
}

// kernel::MomentumRule.
struct Rule {
  float momentum, scale;
  u32 nesterov;
};

// The sum of velocities that follows from `sum` and the new velocity.
DEVICE float sum_after(const Rule& rule, float gradient, float sum, float velocity) {
  if (rule.nesterov == 0) return __fadd_rn(sum, velocity);
  return __fadd_rn(__fadd_rn(sum, __fmul_rn(rule.scale, gradient)),
                   __fmul_rn(rule.momentum, velocity));
}

struct Velocity {
  Rule rule;
  const float *g, *u, *v;
  float *new_u, *new_v;
  struct Read {
    float g, u, v;
  };
  DEVICE_MEMBER Read read(u64 i) const { return {g[i], u[i], v[i]}; }
  DEVICE_MEMBER float make(u64 i, const Read& read) const {
    const float own = __fmul_rn(rule.scale, read.g);
    const float velocity = __fadd_rn(__fmul_rn(rule.momentum, read.u), own);
    new_u[i] = velocity;
    return new_v[i] = sum_after(rule, read.g, read.v, velocity);
  }
};

SUM_KERNEL void add_velocity(Rule rule, const float* g, const float* u, const float* v,
                             float* new_u, float* new_v, u64 count, ChunkMoments* chunks) {
  form_chunks(count, chunks, Velocity{rule, g, u, v, new_u, new_v});
}

KERNEL void mask_velocity(Rule rule, const float* g, const float* sum, const float* rest,
                          float* new_u, u64 count) {
  for (u64 i = thread_index(); i < count; i += thread_count())
    if (rest[i] != sum_after(rule, g[i], sum[i], new_u[i])) new_u[i] = 0;
}

KERNEL void mask_velocity_at(Rule rule, const u32* positions, u64 kept, const float* g,
                             const float* sum, const float* rest, float* new_u) {
  for (u64 k = thread_index(); k < kept; k += thread_count()) {
    const u32 i = positions[k];
    if (rest[i] != sum_after(rule, g[i], sum[i], new_u[i])) new_u[i] = 0;
  }
}

// f and the signal of kernel/ahead_passes.h, from u' and v'.
struct AheadSent {
  float kept, signal;
};

DEVICE AheadSent ahead_sent(float tail, float now, float u, float sum) {
  float kept = 1;
  if (sum != 0) {
    const float share = __fdiv_rn(now, sum);
    kept = share > 0 ? (share < 1 ? share : 1.0f) : 0.0f;
  }
  return {kept, __fadd_rn(sum, __fmul_rn(__fmul_rn(__fsub_rn(1.0f, kept), tail), u))};
}

DEVICE float ahead_now(const Rule& rule, float g, float u) {
  return rule.nesterov != 0 ? __fadd_rn(__fmul_rn(rule.scale, g), __fmul_rn(rule.momentum, u)) : u;
}

struct AheadForm {
  Rule rule;
  float tail;
  const float *g, *u, *v;
  float *new_u, *new_v, *signal;
  using Read = Velocity::Read;
  DEVICE_MEMBER Read read(u64 i) const { return {g[i], u[i], v[i]}; }
  DEVICE_MEMBER float make(u64 i, const Read& read) const {
    const float next = __fadd_rn(__fmul_rn(rule.momentum, read.u), __fmul_rn(rule.scale, read.g));
    const float now = ahead_now(rule, read.g, next);
    const float sum = __fadd_rn(read.v, now);
    new_u[i] = next;
    new_v[i] = sum;
    return signal[i] = ahead_sent(tail, now, next, sum).signal;
  }
};

SUM_KERNEL void form_ahead(Rule rule, float tail, const float* g, const float* u, const float* v,
                           float* new_u, float* new_v, float* signal, u64 count,
                           ChunkMoments* chunks) {
  form_chunks(count, chunks, AheadForm{rule, tail, g, u, v, new_u, new_v, signal});
}

KERNEL void settle_ahead(Rule rule, float tail, const float* g, const float* rest, float* new_u,
                         float* new_v, u64 count) {
  for (u64 i = thread_index(); i < count; i += thread_count()) {
    const float u = new_u[i], left = rest[i];
    const float now = ahead_now(rule, rule.nesterov != 0 ? g[i] : 0.0f, u);
    const AheadSent was = ahead_sent(tail, now, u, new_v[i]);
    if (left == was.signal) continue;
    new_v[i] = left;
    new_u[i] = __fmul_rn(was.kept, u);
  }
}

KERNEL void advance_estimate(const float* estimate, const float* gradient, float* rest, u64 count) {
  for (u64 i = thread_index(); i < count; i += thread_count())
    rest[i] = __fadd_rn(estimate[i], __fsub_rn(__fsub_rn(gradient[i], estimate[i]), rest[i]));
}

KERNEL void scale(float* values, u64 count, float factor) {
  for (u64 i = thread_index(); i < count; i += thread_count())
    values[i] = __fmul_rn(values[i], factor);
}

KERNEL void add_and_copy(float* total, float* values, u64 count) {
  for (u64 i = thread_index(); i < count; i += thread_count())
    values[i] = total[i] = __fadd_rn(total[i], values[i]);
}
