// TransformerBlock: attention and an MLP, each with a residual connection and a norm. The transformers
// consist of them and differ by BlockSettings: decoders have a norm before each part and causal attention,
// that of captioner also attention to the image, bert has the norms after each part and attends to all
// valid time steps, vit to all patches.
//
// Threads: as torch::nn::Module: one thread at a time.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/key_value_cache.h"
#include "shared/model/norm.h"
#include "shared/model/rope.h"

namespace stoker::model {

enum class Norm { kLayer, kRms };
enum class Activation { kGelu, kGeluTanh, kSwiglu };

struct BlockSettings {
  int64_t embed_dim = 0, mlp_dim = 0;
  int64_t num_heads = 0, num_key_value_heads = 0, head_dim = 0;
  Norm norm = Norm::kLayer;
  double norm_eps = 1e-5;
  bool is_post_norm = false;
  bool is_causal = true;
  // After that to the input, attention to BlockContext::memory. Only with has_fused_qkv, and pre-norm.
  bool has_cross_attention = false;
  Activation activation = Activation::kGelu;
  bool has_fused_qkv = true;  // one projection to queries, keys and values; with a head each
  bool qkv_bias = true, proj_bias = true, mlp_bias = true, qk_norm = false;
  double dropout = 0;  // of what the block adds to its input
  double attention_dropout = 0;
  double mlp_dropout = 0;  // after the activation
  bool activation_checkpointing = false;
};

// LayerNorm, or RMSNorm, which has no bias.
class NormLayer : public torch::nn::Module {
 public:
  NormLayer(const BlockSettings& settings, int64_t width);

  at::Tensor forward(const at::Tensor& x) const { return norm(x, weights()); }
  AddedNorm add(const at::Tensor& x, const at::Tensor& delta) const {
    return add_norm(x, delta, weights());
  }

 private:
  NormWeights weights() const { return {weight_, bias_, eps_, is_residual_}; }

  const double eps_;
  const bool is_residual_;
  at::Tensor weight_, bias_;
};
using NormPtr = std::shared_ptr<NormLayer>;

torch::nn::Linear make_linear(int64_t inputs, int64_t outputs, bool bias);

inline bool drops(double rate, bool is_training) { return rate > 0 && is_training; }
at::Tensor drop_out(const at::Tensor& x, double rate, bool is_training);

// What a block needs to know about the time steps of its input.
struct BlockContext {
  RopeTables rope;  // of their positions; undefined without
  at::Tensor mask;  // bool, true: is attended to; undefined: all, or those before
  CachedLayer* maybe_cache = nullptr;  // the time steps before these, to which they are appended
  at::Tensor memory;                   // [batch, positions, embed_dim], of cross attention
  CachedLayer* maybe_memory_cache = nullptr;  // its keys and values, which are computed once
};

class TransformerBlock : public torch::nn::Module {
 public:
  // `settings` must outlive it.
  explicit TransformerBlock(const BlockSettings& settings);

  // `x` [batch, time, embed_dim].
  at::Tensor forward(const at::Tensor& x, const BlockContext& context);
  // Recomputes the block in the backward pass if the settings say so. `adapter_dropout`: of model.lora.
  at::Tensor forward_checkpointed(const at::Tensor& x, const BlockContext& context,
                                  double adapter_dropout);

 protected:
  // For layers with other names and initial values, which the subclass registers and sets below. If its
  // projection to queries, keys and values is no Linear, it overrides project_qkv().
  struct WithoutLayers {};
  TransformerBlock(const BlockSettings& settings, WithoutLayers) : settings_(settings) {}

  virtual at::Tensor project_qkv(const at::Tensor& x);

  NormPtr ln1_, q_norm_, k_norm_, ln_cross_, ln2_;
  torch::nn::Linear qkv_{nullptr}, q_{nullptr}, k_{nullptr}, v_{nullptr}, proj_{nullptr};
  torch::nn::Linear cross_q_{nullptr}, cross_kv_{nullptr}, cross_proj_{nullptr};
  torch::nn::Linear gate_{nullptr}, up_{nullptr}, down_{nullptr};

 private:
  struct Heads {
    at::Tensor q, k, v;  // [batch, heads, time, head_dim]
  };

  Heads project(const at::Tensor& x, const BlockContext& context);
  at::Tensor attend(const at::Tensor& x, const BlockContext& context);
  at::Tensor attend(const Heads& heads, const at::Tensor& mask) const;
  at::Tensor attend_to_memory(const at::Tensor& x, const BlockContext& context);
  KeysAndValues project_memory(const BlockContext& context);
  at::Tensor by_head(const at::Tensor& x, int64_t heads) const;
  at::Tensor merge_heads(const at::Tensor& attended) const;
  at::Tensor repeat_groups(const at::Tensor& x) const;
  at::Tensor mlp(const at::Tensor& x);
  at::Tensor drop(const at::Tensor& x) const {
    return drop_out(x, settings_.dropout, is_training());
  }

  const BlockSettings& settings_;
};

}  // namespace stoker::model
