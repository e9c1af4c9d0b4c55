#include "shared/config/huggingface_config.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

// config.json of a Hugging Face folder. The settings that were read must survive a round trip, unless
// no model_type has this combination of them.
bool run(std::string_view input) {
  const auto config = config::parse_huggingface_config(input, "config.json");
  if (!config.ok()) {  // an error in the configuration, as it is for a user
    check_invariant(config.status().code() == StatusCode::kInvalidArgument,
                    "unexpected status: " + config.status().to_string());
    return check_status(Status(StatusCode::kMismatch, config.status().message()));
  }
  const auto written = config::format_huggingface_config(config->arch);
  if (!written.ok()) return true;
  const auto again = config::parse_huggingface_config(*written, "config.json");
  check_invariant(again.ok() && *config::format_huggingface_config(again->arch) == *written,
                  "the settings must survive a round trip: " + *written);
  return true;
}

}  // namespace

const Format& huggingface_config_format() {
  static constexpr Format kFormat{
      .name = "huggingface_config", .run = run, .seeds = [] {
        return std::vector<std::string>{
            R"({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8, "n_positions": 16,
                "n_inner": null, "vocab_size": 50, "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1,
                "attn_pdrop": 0.1, "embd_pdrop": 0.1, "tie_word_embeddings": true,
                "activation_function": "gelu_new", "unknown": [1, {"a": "\u00e9"}]})",
            R"({"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 4,
                "num_key_value_heads": 2, "hidden_size": 16, "head_dim": 6, "intermediate_size": 24,
                "max_position_embeddings": 32, "vocab_size": 40, "rms_norm_eps": 1e-6,
                "attention_bias": true, "mlp_bias": false, "hidden_act": "silu",
                "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192}, "tie_word_embeddings": false})",
            R"({"model_type": "bert", "num_hidden_layers": 1, "num_attention_heads": 2,
                "hidden_size": 8, "intermediate_size": 12, "max_position_embeddings": 16,
                "type_vocab_size": 2, "vocab_size": 40, "layer_norm_eps": 1e-12,
                "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "classifier_dropout": null,
                "attention_probs_dropout_prob": 0.1, "position_embedding_type": "absolute"})",
            R"({"model_type": "vit", "num_hidden_layers": 1, "num_attention_heads": 2,
                "hidden_size": 8, "intermediate_size": 12, "image_size": 16, "patch_size": 4,
                "layer_norm_eps": 1e-12, "hidden_act": "gelu", "qkv_bias": true,
                "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.0})",
            R"({"model_type": "resnet", "layer_type": "basic", "depths": [2, 2, 2, 2],
                "hidden_sizes": [64, 128, 256, 512], "embedding_size": 64, "hidden_act": "relu",
                "downsample_in_bottleneck": false})",
            R"({"architecture": "vit_tiny_patch16_224", "global_pool": "token",
                "model_args": {"img_size": [32, 32], "patch_size": 8, "depth": 2, "num_heads": 3,
                               "embed_dim": 12, "mlp_ratio": 1.67},
                "pretrained_cfg": {"input_size": [3, 32, 32], "mean": [0.5, 0.5, 0.5]}})",
            R"({"model_type": "qwen3", "num_hidden_layers": 1, "num_attention_heads": 2,
                "num_key_value_heads": 2, "hidden_size": 16, "head_dim": 8, "intermediate_size": 24,
                "max_position_embeddings": 32, "vocab_size": 40, "rms_norm_eps": 1e-6,
                "attention_bias": false, "hidden_act": "silu", "use_sliding_window": false,
                "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
                "tie_word_embeddings": true})"};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
