// digest(): two runs with the same digest compute the same result.
#include <map>

#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

const std::string kBase = "data: {train: {format: text, path: a}, val: {format: text, path: b}}\n";

TEST(DigestTest, IsSha256InHex) {
  EXPECT_THAT(digest(valid_config(kBase)), testing::MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(digest(valid_config(kBase)), digest(valid_config(kBase)));
}

TEST(DigestTest, IgnoresSettingsThatDoNotAffectResult) {
  const std::string base = digest(valid_config(kBase));
  for (const char* const flag : {"run.dir=elsewhere",
                                 "run.deterministic=true",
                                 "run.allow_group_access=true",
                                 "data.train.path=moved",
                                 "data.train.refresh=epoch",
                                 "data.val.path=moved",
                                 "data.val.split=[0, 0.5]",
                                 "data.val.sequence.block_size=16",
                                 "feed.num_workers=7",
                                 "feed.num_workers=auto",
                                 "feed.num_processes=0",
                                 "feed.prefetch_batches=3",
                                 "feed.read_ahead=16",
                                 "feed.read_ahead_mib=3",
                                 "feed.on_sample_error=fail",
                                 "feed.max_sample_error_rate=0",
                                 "feed.sandbox=false",
                                 "model.pretrained.path=w.safetensors",
                                 "model.activation_checkpointing=true",
                                 "train.device=cpu",
                                 "train.num_threads=3",
                                 "train.cuda_graphs=never",
                                 "checkpoint.save_every_steps=3",
                                 "checkpoint.save_every_seconds=3",
                                 "checkpoint.save_at_start=true",
                                 "checkpoint.keep_last=9",
                                 "checkpoint.keep_every_steps=2",
                                 "checkpoint.save_top_k=0",
                                 "checkpoint.keep_unevaluated=20",
                                 "checkpoint.on_write_error=fail",
                                 "eval.datasets=[]",
                                 "eval.checkpoints=all",
                                 "eval.batch_size=3",
                                 "eval.num_threads=3",
                                 "eval.max_samples=3",
                                 "eval.timeout_seconds=3",
                                 "eval.max_attempts=1",
                                 "eval.early_stopping.patience=1",
                                 "eval.generate=null",
                                 "metrics.log_every_steps=3",
                                 "metrics.tensorboard=false",
                                 "control.socket=null",
                                 "control.operators=[a]",
                                 "log.level=debug",
                                 "data.more={format: text, path: x}"}) {
    EXPECT_EQ(digest(valid_config(kBase, {flag})), base) << flag;
  }
}

TEST(DigestTest, DependsOnEverySettingThatAffectsResult) {
  std::map<std::string, std::string> allow_flag{{digest(valid_config(kBase)), "none"}};
  for (const char* const flag : {"run.seed=2",
                                 "run.rng=per_ticket",
                                 "data.train.format=tokens",
                                 "data.train.glob=a",
                                 "data.train.split=[0, 0.5]",
                                 "data.train.split_by=random",
                                 "data.train.split_seed=1",
                                 "data.train.sequence.block_size=16",
                                 "feed.shuffle=none",
                                 "feed.shuffle=block",
                                 "feed.shuffle=shards",
                                 "feed.last_batch=drop",
                                 "data.train.skip_samples=1",
                                 "data.train.max_samples=1",
                                 "data.train.repeat=2",
                                 "data.train.sample_weights_path=w.txt",
                                 "data.train={mixture: {val: 1}}",
                                 "data.train={concat: [val]}",
                                 "model.num_layers=2",
                                 "model.embed_dim=6",
                                 "model.num_heads=2",
                                 "model.context_length=256",
                                 "model.vocab_size=300",
                                 "model.dropout=0.1",
                                 "model.freeze=[tok.weight]",
                                 "model.name=lstm_lm",
                                 "optimizer.name=adam",
                                 "optimizer.name=sgd",
                                 "optimizer={name: sgd, momentum: 0.9}",
                                 "optimizer.lr=1",
                                 "optimizer.betas=[0.1, 0.2]",
                                 "optimizer.eps=0.1",
                                 "optimizer.weight_decay=1",
                                 "train.max_grad_norm=2",
                                 "train.max_grad_norm=null",
                                 "train.max_grad_value=2",
                                 "scheduler.name=linear",
                                 "scheduler.name=constant",
                                 "scheduler.name=step",
                                 "scheduler.warmup_steps=1",
                                 "scheduler.min_lr=1e-5",
                                 "train.max_steps=3",
                                 "train.micro_batch_size=3",
                                 "train.precision=bf16",
                                 "train.precision=fp16",
                                 "train.precision=tf32",
                                 "train.channels_last=true",
                                 "train.flush_denormal=true",
                                 "train.fused_kernels.adamw=true",
                                 "train.fused_kernels.cross_entropy=true",
                                 "train.fused_kernels.gelu=true",
                                 "train.fused_kernels.norm=true",
                                 "train.fused_kernels.rope=true",
                                 "train.fused_kernels.swiglu=true",
                                 "train.ema_decay=0.5",
                                 "train={ema_decay: 0.5, ema_every_steps: 2}",
                                 "train={ema_decay: 0.5, ema_warmup: power}",
                                 "train.gradient_accumulation_steps=3",
                                 "distributed.reduction=ordered",
                                 "cluster.replicas=async",
                                 "cluster.max_staleness=3"}) {
    Flags flags{flag};
    // Keys of text datasets only.
    if (std::string_view(flag) == "data.train.format=tokens") flags.push_back("data.val=");
    const auto [other, is_new] = allow_flag.emplace(digest(valid_config(kBase, flags)), flag);
    EXPECT_TRUE(is_new) << flag << " gives the digest of " << other->second;
  }
}

TEST(DigestTest, CoversTransformsOfTrainingData) {
  const std::string images =
      "data: {train: {format: idx, path: a, labels_path: b}, val: {format: idx, path: c, "
      "labels_path: d}}\ntask: {name: classification}\nmodel: {name: lenet5}\n";
  std::map<std::string, std::string> allow_flag{{digest(valid_config(images)), "none"}};
  for (const char* const flag :
       {"data.train.transforms=[random_horizontal_flip]",
        "data.train.transforms=[random_horizontal_flip: {p: 0.4}]",
        "data.train.transforms=[normalize: {mean: 0.5, std: 0.5}]",
        "data.train.transforms=[normalize: {mean: 0.5, std: 0.25}]",
        "data.train.batch_transforms=[mixup]", "data.train.batch_transforms=[cutmix]",
        "data.train.batch_transforms=[mixup: {alpha: 0.2}]", "task.label_smoothing=0.1",
        "task.class_weights=[1, 2]", "task.class_weights=balanced"}) {
    const auto [other, is_new] = allow_flag.emplace(digest(valid_config(images, {flag})), flag);
    EXPECT_TRUE(is_new) << flag << " gives the digest of " << other->second;
  }
  for (const char* const flag : {"data.train.labels_path=moved", "data.train.path=moved"})
    EXPECT_EQ(digest(valid_config(images, {flag})), digest(valid_config(images))) << flag;
}

TEST(DigestTest, IgnoresCache) {
  const std::string images =
      "data: {train: {format: image_folder, path: a, transforms: [resize: {size: [8, 8]}]}}\n"
      "task: {name: classification}\nmodel: {name: lenet5}\n";
  const std::string base = digest(valid_config(images));
  for (const char* const cache :
       {"{type: packed}", "{type: decoded, dir: x}", "{jpeg_restart_markers: true}"})
    EXPECT_EQ(digest(valid_config(images, {"data.train.cache=" + std::string(cache)})), base)
        << cache;
}

TEST(DigestTest, CoversComponentsOfMixture) {
  const std::string mixed =
      "data: {train: {mixture: {a: 1}}, a: {format: text, path: a}, b: {format: text, path: b}}\n";
  const std::string base = digest(valid_config(mixed));
  EXPECT_NE(digest(valid_config(mixed, {"data.a.split=[0, 0.5]"})), base);
  EXPECT_EQ(digest(valid_config(mixed, {"data.b.split=[0, 0.5]"})), base);
  EXPECT_NE(digest(valid_config(mixed, {"data.train.mixture={a: 1, b: 1}"})), base);
}

TEST(DigestTest, DoesNotDependOnFormOfText) {
  EXPECT_EQ(
      digest(valid_config("data:\n  train:\n    path: a\n    format: text # here\ntrain: {}\n")),
      digest(valid_config("data: {train: {format: text, path: a}}\n")));
}

TEST(DigestTest, ListsSettingsThatItCovers) {
  const auto settings = result_affecting_settings(valid_config(kBase));
  EXPECT_THAT(settings, testing::Contains(testing::Pair("train.micro_batch_size", "16")));
  EXPECT_THAT(settings, testing::Contains(testing::Pair("model.name", "gpt")));
  EXPECT_THAT(settings, testing::Contains(testing::Pair("data.train.sequence.block_size", "128")));
  for (const auto& [key, value] : settings) {
    EXPECT_FALSE(key.starts_with("data.val")) << key;
    EXPECT_FALSE(key.starts_with("eval.")) << key;
  }
}

// Every checkpoint contains a digest. New settings may be added to it, but a change here would make
// checkpoints of earlier versions incompatible.
TEST(DigestTest, StaysTheSameAcrossVersions) {
  EXPECT_EQ(digest(valid_config(kBase)),
            "c2ada5bb66d3754fef69e19c756d6b0bd724bc6431cefafde275d1da5be98c10");
}

}  // namespace
}  // namespace stoker::config::test
