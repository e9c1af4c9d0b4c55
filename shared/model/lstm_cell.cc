#include "shared/model/lstm_cell.h"

#include <algorithm>
#include <bit>

#include "shared/base/target_clones.h"

namespace stoker::model {
namespace {

// Always inlined, so that each clone of the functions below has its own loops. Each loop writes to
// a single array, or declares all its arrays __restrict__, so that the compiler vectorizes it.
#define STOKER_INLINE [[gnu::always_inline]] inline

constexpr int64_t kGates = 4;

// e^x for x <= 0, within 2 ulp. Inputs below -87 are clamped, where the result is negligible.
// Branch-free. e^x = 2^n e^r with |r| <= ln 2 / 2; e^r is the polynomial of Cephes' expf.
STOKER_INLINE float exp_of_negative(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = clamped * 1.44269504f + kToInteger;
  const float n = shifted - kToInteger;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const auto power = (std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kToInteger) + 127)
                     << 23;
  return p * std::bit_cast<float>(power);
}

STOKER_INLINE float sigmoid(float x) {
  const float e = exp_of_negative(-__builtin_fabsf(x));
  const float s = 1.0f / (1.0f + e);
  return x < 0.0f ? e * s : s;
}

// Near 0 the difference 1 - e^(-2x) would lose precision; there it uses the odd polynomial of
// Cephes' tanhf.
STOKER_INLINE float hyperbolic_tangent(float x) {
  const float e = exp_of_negative(-2.0f * __builtin_fabsf(x));
  const float far = __builtin_copysignf((1.0f - e) / (1.0f + e), x);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  return __builtin_fabsf(x) < 0.625f ? near : far;
}

template <bool kIsTanh>
STOKER_INLINE void activate(int64_t count, const float* __restrict__ from_input,
                            const float* __restrict__ from_before, const float* __restrict__ bias,
                            float* __restrict__ gate) {
  for (int64_t k = 0; k < count; ++k) {
    const float sum = from_input[k] + from_before[k] + bias[k];
    gate[k] = kIsTanh ? hyperbolic_tangent(sum) : sigmoid(sum);
  }
}

// `gates` is one row: i, f, g, o.
STOKER_INLINE void next_cell(int64_t hidden, const float* __restrict__ gates,
                             const float* __restrict__ before, float* __restrict__ c) {
  for (int64_t k = 0; k < hidden; ++k)
    c[k] = gates[hidden + k] * before[k] + gates[k] * gates[2 * hidden + k];
}

STOKER_INLINE void output(int64_t hidden, const float* __restrict__ o, const float* __restrict__ c,
                          float* __restrict__ h) {
  for (int64_t k = 0; k < hidden; ++k) h[k] = o[k] * hyperbolic_tangent(c[k]);
}

STOKER_INLINE void row_backward(int64_t hidden, const float* __restrict__ c,
                                const float* __restrict__ before, const float* __restrict__ dh_out,
                                const float* __restrict__ dh_next, float* __restrict__ dc,
                                float* __restrict__ i, float* __restrict__ f, float* __restrict__ g,
                                float* __restrict__ o) {
  for (int64_t k = 0; k < hidden; ++k) {
    const float dh = dh_out[k] + dh_next[k];
    const float tanh_c = hyperbolic_tangent(c[k]);
    const float gate_i = i[k], gate_f = f[k], gate_g = g[k], gate_o = o[k];
    const float d = dc[k] + dh * gate_o * (1.0f - tanh_c * tanh_c);
    i[k] = d * gate_g * gate_i * (1.0f - gate_i);
    f[k] = d * before[k] * gate_f * (1.0f - gate_f);
    g[k] = d * gate_i * (1.0f - gate_g * gate_g);
    o[k] = dh * tanh_c * gate_o * (1.0f - gate_o);
    dc[k] = d * gate_f;
  }
}

STOKER_INLINE void add(int64_t count, const float* __restrict__ from, float* __restrict__ to) {
  for (int64_t k = 0; k < count; ++k) to[k] += from[k];
}

}  // namespace

STOKER_FUSED_VECTOR_CLONES
void lstm_forward(const LstmForward& step) {
  const int64_t hidden = step.hidden;
  for (int64_t row = 0; row < step.rows; ++row) {
    const int64_t at = row * kGates * hidden, tanh_at = 2 * hidden, output_at = 3 * hidden;
    const float *const from_input = step.from_input + at, *const before = step.from_before + at;
    float *const gates = step.gates + at, *const c = step.c + row * hidden,
                 *const h = step.h + row * step.h_stride;
    if (step.padding.is_padding(row)) {
      std::fill_n(gates, kGates * hidden, 0.0f);
      std::fill_n(c, hidden, 0.0f);
      std::fill_n(h, hidden, 0.0f);
      continue;
    }
    activate<false>(2 * hidden, from_input, before, step.bias, gates);
    activate<true>(hidden, from_input + tanh_at, before + tanh_at, step.bias + tanh_at,
                   gates + tanh_at);
    activate<false>(hidden, from_input + output_at, before + output_at, step.bias + output_at,
                    gates + output_at);
    next_cell(hidden, gates, step.c_before + row * hidden, c);
    output(hidden, gates + output_at, c, h);
  }
}

STOKER_FUSED_VECTOR_CLONES
void lstm_backward(const LstmBackward& step) {
  const int64_t hidden = step.hidden;
  for (int64_t row = 0; row < step.rows; ++row) {
    float* const gates = step.gates + row * kGates * hidden;
    if (step.padding.is_padding(row)) {
      std::fill_n(gates, kGates * hidden, 0.0f);
      std::fill_n(step.dc + row * hidden, hidden, 0.0f);
      continue;
    }
    row_backward(hidden, step.c + row * hidden, step.c_before + row * hidden,
                 step.dh_out + row * step.dh_stride, step.dh_next + row * hidden,
                 step.dc + row * hidden, gates, gates + hidden, gates + 2 * hidden,
                 gates + 3 * hidden);
    add(kGates * hidden, gates, step.dbias);
  }
}

}  // namespace stoker::model
