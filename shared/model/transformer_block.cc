#include "shared/model/transformer_block.h"

#include <utility>
#include <vector>

#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include "shared/model/activation_checkpointing.h"
#include "shared/model/attention.h"
#include "shared/model/gelu.h"
#include "shared/model/linear.h"
#include "shared/model/swiglu.h"

namespace stoker::model {

NormLayer::NormLayer(const BlockSettings& settings, int64_t width)
    : eps_(settings.norm_eps),
      is_residual_(settings.is_post_norm),
      weight_(register_parameter("weight", at::ones({width}))) {
  if (settings.norm == Norm::kLayer) bias_ = register_parameter("bias", at::zeros({width}));
}

torch::nn::Linear make_linear(int64_t inputs, int64_t outputs, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(inputs, outputs).bias(bias));
}

at::Tensor drop_out(const at::Tensor& x, double rate, bool is_training) {
  return drops(rate, is_training) ? at::dropout(x, rate, true) : x;
}

TransformerBlock::TransformerBlock(const BlockSettings& settings) : settings_(settings) {
  const int64_t width = settings.embed_dim, heads_width = settings.num_heads * settings.head_dim,
                groups_width = settings.num_key_value_heads * settings.head_dim;
  const auto add_norm = [&](const char* name, int64_t size) {
    return register_module(name, std::make_shared<NormLayer>(settings, size));
  };
  const auto add_linear = [&](const char* name, int64_t inputs, int64_t outputs, bool bias) {
    return register_module(name, make_linear(inputs, outputs, bias));
  };
  ln1_ = add_norm("ln1", width);
  if (settings.has_fused_qkv) {
    qkv_ = add_linear("qkv", width, 3 * width, settings.qkv_bias);
  } else {
    q_ = add_linear("q", width, heads_width, settings.qkv_bias);
    k_ = add_linear("k", width, groups_width, settings.qkv_bias);
    v_ = add_linear("v", width, groups_width, settings.qkv_bias);
  }
  if (settings.qk_norm) {
    q_norm_ = add_norm("q_norm", settings.head_dim);
    k_norm_ = add_norm("k_norm", settings.head_dim);
  }
  proj_ = add_linear("proj", heads_width, width, settings.proj_bias);
  if (settings.has_cross_attention) {
    ln_cross_ = add_norm("ln_cross", width);
    cross_q_ = add_linear("q", width, heads_width, settings.qkv_bias);
    cross_kv_ = add_linear("kv", width, 2 * heads_width, settings.qkv_bias);
    cross_proj_ = add_linear("cross_proj", heads_width, width, settings.proj_bias);
  }
  ln2_ = add_norm("ln2", width);
  if (settings.activation == Activation::kSwiglu)
    gate_ = add_linear("gate", width, settings.mlp_dim, settings.mlp_bias);
  up_ = add_linear("up", width, settings.mlp_dim, settings.mlp_bias);
  down_ = add_linear("down", settings.mlp_dim, width, settings.mlp_bias);
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const BlockContext& context) {
  if (settings_.is_post_norm) {
    const at::Tensor y = ln1_->add(x, drop(attend(x, context))).output;
    return ln2_->add(y, drop(mlp(y))).output;
  }
  at::Tensor y = x, added = drop(attend(ln1_->forward(x), context));
  if (settings_.has_cross_attention) {
    const AddedNorm attended = ln_cross_->add(y, added);
    y = attended.sum;
    added = drop(attend_to_memory(attended.output, context));
  }
  const auto [sum, normalized] = ln2_->add(y, added);
  return sum + drop(mlp(normalized));
}

at::Tensor TransformerBlock::forward_checkpointed(const at::Tensor& x, const BlockContext& context,
                                                  double adapter_dropout) {
  if (!settings_.activation_checkpointing) return forward(x, context);
  const bool uses_random = drops(settings_.dropout, is_training()) ||
                           drops(settings_.attention_dropout, is_training()) ||
                           drops(settings_.mlp_dropout, is_training()) ||
                           drops(adapter_dropout, is_training());
  std::vector<at::Tensor> tensors = parameters();
  if (context.memory.defined()) tensors.push_back(context.memory);
  return checkpoint_activations(
      [this, context](const at::Tensor& input) { return forward(input, context); }, x,
      std::move(tensors), uses_random);
}

at::Tensor TransformerBlock::project_qkv(const at::Tensor& x) { return linear(qkv_, x); }

TransformerBlock::Heads TransformerBlock::project(const at::Tensor& x,
                                                  const BlockContext& context) {
  if (settings_.has_fused_qkv) {
    const std::vector<at::Tensor> qkv = split_heads(project_qkv(x), settings_.num_heads);
    return {qkv[0], qkv[1], qkv[2]};
  }
  Heads heads{by_head(linear(q_, x), settings_.num_heads),
              by_head(linear(k_, x), settings_.num_key_value_heads),
              by_head(linear(v_, x), settings_.num_key_value_heads)};
  if (settings_.qk_norm) {
    heads.q = q_norm_->forward(heads.q);
    heads.k = k_norm_->forward(heads.k);
  }
  if (context.rope.cos.defined()) {
    heads.q = rotate(heads.q, context.rope);
    heads.k = rotate(heads.k, context.rope);
  }
  return heads;
}

at::Tensor TransformerBlock::attend(const at::Tensor& x, const BlockContext& context) {
  CachedLayer* const maybe_cache = context.maybe_cache;
  const Heads heads = project(x, context);
  if (maybe_cache) maybe_cache->append({heads.k, heads.v});
  const bool has_past = maybe_cache && maybe_cache->length() > x.size(1);
  return linear(proj_, merge_heads(has_past ? attend_to_past(heads.q, maybe_cache->all())
                                            : attend(heads, context.mask)));
}

at::Tensor TransformerBlock::attend(const Heads& heads, const at::Tensor& mask) const {
  return at::scaled_dot_product_attention(
      heads.q, repeat_groups(heads.k), repeat_groups(heads.v),
      mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt,
      is_training() ? settings_.attention_dropout : 0.0,
      /*is_causal=*/settings_.is_causal && !mask.defined());
}

at::Tensor TransformerBlock::attend_to_memory(const at::Tensor& x, const BlockContext& context) {
  const at::Tensor q = by_head(linear(cross_q_, x), settings_.num_heads);
  const auto [keys, values] = project_memory(context);
  return linear(cross_proj_, merge_heads(at::scaled_dot_product_attention(
                                 q, keys, values, /*attn_mask=*/{},
                                 is_training() ? settings_.attention_dropout : 0.0)));
}

KeysAndValues TransformerBlock::project_memory(const BlockContext& context) {
  CachedLayer* const maybe_cache = context.maybe_memory_cache;
  if (maybe_cache && maybe_cache->length() > 0) return maybe_cache->all();
  const std::vector<at::Tensor> kv = linear(cross_kv_, context.memory).chunk(2, /*dim=*/2);
  const KeysAndValues projected{by_head(kv[0], settings_.num_heads),
                                by_head(kv[1], settings_.num_heads)};
  if (maybe_cache) maybe_cache->append(projected);
  return projected;
}

at::Tensor TransformerBlock::by_head(const at::Tensor& x, int64_t heads) const {
  return x.view({x.size(0), x.size(1), heads, settings_.head_dim}).transpose(1, 2);
}

at::Tensor TransformerBlock::merge_heads(const at::Tensor& attended) const {
  return attended.transpose(1, 2).reshape(
      {attended.size(0), attended.size(2), settings_.num_heads * settings_.head_dim});
}

// Each head of keys and values serves the same number of queries' heads. Repeated, because the
// fast kernels of the CPU want as many of either.
at::Tensor TransformerBlock::repeat_groups(const at::Tensor& x) const {
  const int64_t repeats = settings_.num_heads / settings_.num_key_value_heads;
  if (repeats == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), repeats, x.size(2), x.size(3)})
      .reshape({x.size(0), settings_.num_heads, x.size(2), x.size(3)});
}

at::Tensor TransformerBlock::mlp(const at::Tensor& x) {
  const auto activate = [&] {
    switch (settings_.activation) {
      case Activation::kGelu:
        return linear_gelu(up_, x, GeluForm::kExact);
      case Activation::kGeluTanh:
        return linear_gelu(up_, x, GeluForm::kTanh);
      case Activation::kSwiglu:
        break;
    }
    return swiglu(linear(gate_, x), linear(up_, x));
  };
  return linear(down_, drop_out(activate(), settings_.mlp_dropout, is_training()));
}

}  // namespace stoker::model
